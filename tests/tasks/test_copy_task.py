"""Copy with a fixed and with a variable delay."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from remanence.tasks import Copy, CopyVariable, generator, side_by_side

CPU = torch.device("cpu")


def tokens(batch):
    """Inputs as rows of symbols, one per sequence; every step must be one-hot."""
    assert torch.equal(batch.inputs.sum(-1), torch.ones(batch.inputs.shape[:2]))
    assert set(batch.inputs.unique().tolist()) <= {0.0, 1.0}
    return batch.inputs.argmax(-1).t().tolist()


def logits(targets, outputs):
    """Outputs of a model that is sure of these targets."""
    return 50 * torch.nn.functional.one_hot(targets, outputs).double()


class TestFixedDelay:
    def test_small_example_by_hand(self):
        task = Copy(delay=4, symbols=3, length=2)
        batch = task.show((torch.tensor([[0, 2], [1, 2]], dtype=torch.uint8),))
        assert tokens(batch) == [[0, 1, 3, 3, 3, 3, 4, 3], [2, 2, 3, 3, 3, 3, 4, 3]]
        assert batch.targets.t().tolist() == [[3, 3, 3, 3, 3, 3, 0, 1], [3, 3, 3, 3, 3, 3, 2, 2]]
        assert batch.inputs.shape == (8, 2, 5)
        assert batch.inputs.is_contiguous()
        assert batch.dt is batch.lengths is batch.counts is None

    def test_cues_at_every_step_of_recall(self):
        task = Copy(delay=4, symbols=3, length=2, form="cues")
        batch = task.show((torch.tensor([[0], [1]], dtype=torch.uint8),))
        assert tokens(batch) == [[0, 1, 3, 3, 3, 3, 4, 4]]
        assert batch.targets.t().tolist() == [[3, 3, 3, 3, 3, 3, 0, 1]]

    def test_the_papers_sizes(self):
        task = Copy()
        assert (task.input_size, task.output_size) == (10, 10)
        assert task.source("train", 1, CPU).size == 100_000
        assert task.source("validation", 1, CPU).size == 10_000
        assert task.source("test", 1, CPU) is None
        assert task.source("train", 1, CPU).pick(torch.arange(3)).inputs.shape == (220, 3, 10)
        assert Copy(delay=480, form="cues").source("validation", 1, CPU).pick(torch.arange(1)).inputs.shape[0] == 500

    def test_a_set_keeps_only_symbols(self):
        (symbols,) = Copy(train_size=50).source("train", 1, CPU).parts
        assert symbols.shape == (10, 50)
        assert symbols.dtype == torch.uint8

    @given(
        delay=st.integers(1, 30),
        symbols=st.integers(1, 12),
        length=st.integers(1, 7),
        count=st.integers(1, 6),
        form=st.sampled_from(["arjovsky", "cues"]),
    )
    @settings(deadline=None, max_examples=40)
    def test_inputs_and_targets_as_a_plain_program_writes_them(self, delay, symbols, length, count, form):
        task = Copy(delay=delay, symbols=symbols, length=length, form=form, train_size=None)
        batch = task.source("train", 1, CPU).draw(count, generator(3, "train"))
        dummy, signal = symbols, symbols + 1
        for row, target in zip(tokens(batch), batch.targets.t().tolist(), strict=True):
            said = row[:length]
            assert all(symbol < symbols for symbol in said)
            end = [signal] + [dummy] * (length - 1) if form == "arjovsky" else [signal] * length
            assert row == said + [dummy] * delay + end
            assert target == [dummy] * (length + delay) + said

    def test_symbols_are_uniform_at_every_place_and_independent_of_the_one_before(self):
        task = Copy(train_size=20_000)
        (symbols,) = task.source("train", 1, CPU).parts
        for row in symbols:
            assert stats.chisquare(torch.bincount(row.long(), minlength=8).numpy()).pvalue > 1e-3
        pairs = (symbols[:-1].long() * 8 + symbols[1:].long()).flatten()
        assert stats.chisquare(torch.bincount(pairs, minlength=64).numpy()).pvalue > 1e-3

    def test_many_symbols(self):
        task = Copy(symbols=1000, train_size=5000)
        (symbols,) = task.source("train", 1, CPU).parts
        assert symbols.max() > 900

    def test_scores_of_a_perfect_and_of_a_wrong_model(self):
        task = Copy(delay=3, symbols=4, length=2)
        batch = side_by_side([task.show((torch.tensor([[0, 1, 2], [3, 0, 1]], dtype=torch.uint8),))])
        perfect = logits(batch.targets, 6)
        assert {name: (s.total / s.count).item() for name, s in task.scores(perfect, batch).items()} == pytest.approx(
            {"loss": 0, "accuracy": 1, "sequence_accuracy": 1}, abs=1e-12
        )
        wrong = batch.targets.clone()
        wrong[0, -1, 0] = 1  # one symbol of the first sequence
        wrong[0, 2, 1] = 0  # a dummy: no matter for accuracy
        scores = task.scores(logits(wrong, 6), batch)
        assert (scores["accuracy"].total.tolist(), scores["accuracy"].count.tolist()) == ([5.0], [6.0])
        assert (scores["sequence_accuracy"].total.tolist(), scores["sequence_accuracy"].count.tolist()) == (
            [2.0],
            [3.0],
        )
        assert scores["loss"].total.item() == pytest.approx(100)
        assert scores["loss"].count.item() == 7 * 3

    @pytest.mark.parametrize(("delay", "level"), [(200, 0.0945), (500, 0.0400), (1000, 0.0204)])
    def test_reference_is_the_loss_of_a_model_without_memory(self, delay, level):
        task = Copy(delay=delay, validation_size=20)
        assert round(task.references["loss"], 4) == level
        assert task.references["accuracy"] == 1 / 8
        assert task.references["sequence_accuracy"] == pytest.approx(8**-10)
        batch = side_by_side([task.source("validation", 1, CPU).pick(torch.arange(20))])
        guess = torch.full((1, delay + 20, 20, 10), -1000.0)
        guess[:, : delay + 10, :, 8] = 0
        guess[:, delay + 10 :, :, :8] = 0
        assert task.loss(guess, batch).item() == pytest.approx(task.references["loss"], rel=1e-5)

    @pytest.mark.parametrize("outputs", [10, 3])
    def test_loss_is_the_mean_cross_entropy_over_all_positions(self, outputs):
        task = Copy(delay=2, symbols=outputs - 2, length=2)
        batch = side_by_side([task.show((torch.zeros(2, 3, dtype=torch.uint8),))])
        given_outputs = torch.randn(1, 6, 3, outputs, dtype=torch.float64)
        naive = [
            -math.log(given_outputs[0, t, b].softmax(-1)[batch.targets[0, t, b]]) for t in range(6) for b in range(3)
        ]
        assert task.loss(given_outputs, batch).item() == pytest.approx(sum(naive) / 18)


class TestVariableDelay:
    def test_small_example_by_hand(self):
        task = CopyVariable(shortest=1, longest=3, symbols=3, length=2)
        symbols = torch.tensor([[0, 2], [1, 2]], dtype=torch.uint8)
        batch = task.show((symbols, torch.tensor([1, 3], dtype=torch.int32)))
        assert tokens(batch) == [[0, 1, 3, 4, 3, 3, 3], [2, 2, 3, 3, 3, 4, 3]]
        assert batch.targets.t().tolist() == [[3, 3, 3, 0, 1, 3, 3], [3, 3, 3, 3, 3, 2, 2]]
        assert batch.counts.t().tolist() == [[True] * 5 + [False] * 2, [True] * 7]
        assert batch.lengths.tolist() == [5, 7]

    @given(
        shortest=st.integers(1, 20),
        extra=st.integers(0, 20),
        symbols=st.integers(1, 12),
        length=st.integers(1, 7),
        form=st.sampled_from(["arjovsky", "cues"]),
    )
    @settings(deadline=None, max_examples=40)
    def test_inputs_targets_and_masks_as_a_plain_program_writes_them(self, shortest, extra, symbols, length, form):
        longest = shortest + extra
        task = CopyVariable(
            shortest=shortest, longest=longest, symbols=symbols, length=length, form=form, train_size=None
        )
        batch = task.source("train", 1, CPU).draw(5, generator(3, "train"))
        dummy, signal = symbols, symbols + 1
        rows = zip(tokens(batch), batch.targets.t().tolist(), batch.counts.t().tolist(), batch.lengths, strict=True)
        for row, target, counts, steps in rows:
            steps = steps.item()
            delay, padding = steps - 2 * length, longest + 2 * length - steps
            assert shortest <= delay <= longest
            said = row[:length]
            end = [signal] + [dummy] * (length - 1) if form == "arjovsky" else [signal] * length
            assert row == said + [dummy] * delay + end + [dummy] * padding
            assert target == [dummy] * (length + delay) + said + [dummy] * padding
            assert counts == [True] * steps + [False] * padding

    def test_delays_are_uniform_with_both_ends(self):
        _, delays = CopyVariable(shortest=20, longest=29, train_size=20_000).source("train", 1, CPU).parts
        counts = torch.bincount(delays.long() - 20)
        assert len(counts) == 10
        assert stats.chisquare(counts.numpy()).pvalue > 1e-3

    def test_padding_has_no_influence_on_loss_and_scores(self):
        task = CopyVariable(shortest=1, longest=9, symbols=4, length=3, validation_size=30)
        batch = side_by_side([task.source("validation", 1, CPU).pick(torch.arange(30))])
        outputs = torch.randn(1, 15, 30, 6)
        other = torch.where(batch.counts.unsqueeze(-1), outputs, torch.inf)
        assert not torch.equal(outputs, other)
        assert torch.equal(task.loss(outputs, batch), task.loss(other, batch))
        for name, score in task.scores(outputs, batch).items():
            assert torch.equal(score.total, task.scores(other, batch)[name].total)

    def test_padding_gets_no_gradient(self):
        task = CopyVariable(shortest=1, longest=9, symbols=4, length=3, validation_size=30)
        batch = side_by_side([task.source("validation", 1, CPU).pick(torch.arange(30))])
        outputs = torch.randn(1, 15, 30, 6, requires_grad=True)
        (slope,) = torch.autograd.grad(task.loss(outputs, batch).sum(), outputs)
        assert torch.equal(slope.abs().sum(-1) > 0, batch.counts)

    def test_scores_look_at_the_last_steps_of_every_sequence(self):
        task = CopyVariable(shortest=1, longest=9, symbols=4, length=3, validation_size=30)
        batches = [task.source("validation", seed, CPU).pick(torch.arange(30)) for seed in (1, 2)]
        batch = side_by_side(batches)
        outputs = torch.randn(2, 15, 30, 6)
        scores = task.scores(outputs, batch)
        for r in range(2):
            right = []
            for b in range(30):
                steps = batch.lengths[r, b].item()
                hits = outputs[r, steps - 3 : steps, b].argmax(-1) == batch.targets[r, steps - 3 : steps, b]
                right.append(hits.tolist())
            assert scores["accuracy"].total[r] == sum(map(sum, right))
            assert scores["accuracy"].count[r] == 90
            assert scores["sequence_accuracy"].total[r] == sum(map(all, right))
            assert scores["loss"].count[r] == batch.lengths[r].sum()

    def test_one_delay_is_plain_copy(self):
        fixed, variable = Copy(delay=7, train_size=20), CopyVariable(shortest=7, longest=7, train_size=20)
        numbers = torch.tensor([3, 0, 19])
        source = variable.source("train", 1, CPU)
        theirs = fixed.show((source.parts[0].index_select(1, numbers),))
        ours = source.pick(numbers)
        assert torch.equal(ours.inputs, theirs.inputs)
        assert torch.equal(ours.targets, theirs.targets)
        outputs = torch.randn(1, 27, 3, 10)
        torch.testing.assert_close(
            variable.loss(outputs, side_by_side([ours])), fixed.loss(outputs, side_by_side([theirs]))
        )
        assert variable.references == fixed.references

    def test_reference_is_the_loss_of_a_model_without_memory(self):
        task = CopyVariable(shortest=2, longest=6, validation_size=4000)
        batch = side_by_side([task.source("validation", 1, CPU).pick(torch.arange(4000))])
        recalling = batch.targets < 8
        guess = torch.full((*recalling.shape, 10), -1000.0)
        guess[..., :8] = torch.where(recalling, 0.0, -1000.0).unsqueeze(-1)
        guess[..., 8] = torch.where(recalling, -1000.0, 0.0)
        assert task.loss(guess, batch).item() == pytest.approx(task.references["loss"], rel=5e-3)  # delays are random
