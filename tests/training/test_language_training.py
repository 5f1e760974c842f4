"""Language models in the training loop: chunks of random lengths, penalties, averaged weights, fixed biases."""

import json
import math

import pytest
import torch
from small_runs import TASK, WORDS, Made, weights, words_run

from remanence.training import Optimiser, Silent, Training, train
from remanence.training.batches import JitteredOrder, usual_updates
from remanence.training.forward import Noise
from remanence.training.loop import Loop
from remanence.training.optimisers import Averages, averaging_began
from remanence.training.schedule import Timetable

CPU = torch.device("cpu")


def metrics(run):
    return [json.loads(line) for line in (run.directory / "metrics.jsonl").read_text().splitlines()]


# The order of chunks.


def order(seed=1):
    return JitteredOrder(Made().source("train", 1, CPU), 4, seed)


def test_a_pass_reads_every_lane_to_its_end_in_chunks_of_random_lengths():
    one = order()
    for _ in range(3):
        assert one.at_start
        pieces = [one.next()]
        while not one.at_start:
            pieces.append(one.next())
        inputs = torch.cat([piece.inputs for piece in pieces])
        targets = torch.cat([piece.targets for piece in pieces])
        assert torch.equal(inputs, one.lanes[:-1].long())
        assert torch.equal(targets, one.lanes[1:].long())
        assert len({len(piece.inputs) for piece in pieces}) > 2


def test_lanes_run_side_by_side_through_the_stream():
    one = order()
    tokens = Made().source("train", 1, CPU).stream.tokens[: 49 * 8 + 1]
    assert torch.equal(one.lanes.T.flatten(), tokens[: len(one.lanes) * 4])


def test_the_learning_rate_is_proportional_to_the_length():
    one = order()
    for _ in range(30):
        steps = len(one.next().inputs)
        assert one.factor == steps / 8


def test_another_jittered_order_resumes_where_one_stopped():
    one, other = order(), order()
    for _ in range(17):
        one.next()
    other.resume_at(one.generator_state, one.position)
    for _ in range(20):
        assert torch.equal(one.next().inputs, other.next().inputs)


def test_an_epoch_is_as_long_as_a_pass_on_average():
    one, passes = order(), 200
    taken = 0
    for _ in range(passes):
        one.next()
        taken += 1
        while not one.at_start:
            one.next()
            taken += 1
    # Chunks of 8 have no fewer than 5 steps, which this task cuts off often: the mean is a little more than expected.
    assert taken / passes == pytest.approx(usual_updates(one.source, 4), rel=0.15)


def test_chunks_of_the_penn_treebank_are_those_of_the_public_code():
    class Long(Made):
        def source(self, split, seed, device):
            found = super().source(split, seed, device)
            found.length = 70
            found.lanes = lambda batch: torch.zeros(929_589 // batch, batch, dtype=torch.int32)
            return found

    assert usual_updates(Long().source("train", 1, CPU), 20) == 686


def test_a_task_without_a_text_is_refused():
    with pytest.raises(ValueError, match=r"expected training\.jitter only with a task that reads a text"):
        Timetable.of(Training(jitter=True, stateful=True, batch=8), TASK.source("train", 1, CPU))


def test_jitter_without_a_carried_state_is_refused():
    with pytest.raises(ValueError, match=r"expected training\.jitter to be used with training\.stateful only, got"):
        Training(jitter=True)


# One update.


def test_an_update_is_that_of_the_published_recipe_written_manually(tmp_path):
    loop = Loop.alone([words_run(tmp_path, optimiser=Optimiser("sgd", lr=1, clip_norm=0.25, weight_decay=1e-3))], CPU)
    replica = loop.population.replicas[0]
    twin = replica.run.make_model().train()
    twin.load_state_dict(replica.model.state_dict())
    order = JitteredOrder(replica.order.source, 4, 1)
    noise = Noise(1, CPU)
    state = None
    for update in range(6):
        if order.at_start:
            state = None
        batch = order.next()
        with noise.active():
            loss = twin.loss(batch.inputs, batch.targets, state)
        state = loss.state
        twin.zero_grad()
        loss.total.backward()
        assert set(loss.penalties) == {"activation", "change"}
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.25)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter -= len(batch.inputs) / 8 * (parameter.grad + 1e-3 * parameter)
        loop.update()
        assert float(loop.population.losses[0, update]) == pytest.approx(float(loss.nll.detach()), rel=1e-5)
        ours = {name: weight.detach() for name, weight in replica.model.named_parameters()}
        theirs = {name: weight.detach() for name, weight in twin.named_parameters()}
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_fixed_biases_stay_bit_for_bit_whatever_decay_and_averages_do(tmp_path):
    run = words_run(tmp_path)
    before = run.make_model().state_dict()
    train([run])
    for after in (weights(run), weights(run, "best.safetensors")):
        for layer in (0, 1):
            for kind in ("ih", "hh"):
                set_ones = f"layers.{layer}.frozen_bias_{kind}_l0"
                assert torch.equal(after[set_ones], before[set_ones])
                learned = after[f"layers.{layer}.bias_{kind}_l0"]
                assert not learned[:20].any()  # input and forget gates of ten units
                assert learned[20:].all()


def test_recurrent_weights_are_trained_through_their_dropout(tmp_path):
    run = words_run(tmp_path, model="baseline")
    torch.manual_seed(1)
    before = run.make_model().state_dict()
    train([run])
    after = weights(run)
    for layer in range(3):
        name = f"layers.{layer}.weight_hh_l0"
        assert (after[name] - before[name]).abs().min() > 0


# Averages.


def line(update, loss):
    return {"update": update, "validation": {"loss": loss}}


@pytest.mark.parametrize(
    ("losses", "patience", "expected"),
    [
        ([3, 2, 1], 0, None),
        ([3, 2, 2.5], 0, 3),
        ([3, 2, 2.5, 2.6, 2.7], 1, 4),  # 2.6 is above 2, the best of those before but one
        ([3, 2, 2.5, 1.9, 1.8], 1, None),
        ([5, 4, 4.5, 4.4, 4.3, 4.2, 4.1], 5, None),  # the best of all but the latest five is the first
        ([4, 5, 4.5, 4.4, 4.3, 4.2, 4.1], 5, 7),
        ([4, None, 3], 0, 2),
        ([], 0, None),
    ],
)
def test_averages_begin_as_in_the_public_code(losses, patience, expected):
    lines = [line(number + 1, loss) for number, loss in enumerate(losses)]
    assert averaging_began(lines, Optimiser("sgd", average="when stalled", average_patience=patience)) == expected
    assert averaging_began(lines, Optimiser("sgd", average_patience=patience)) is None


def test_averages_are_means_over_the_updates_since_they_began():
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(9, 2, 3, generator=generator, dtype=torch.float64)
    averages = Averages(weights[0])
    assert averages.evaluated(weights[0], 0) is weights[0] or torch.equal(averages.evaluated(weights[0], 0), weights[0])
    for update in range(1, 9):
        averages.add(weights[update], update)
        if update == 4:
            averages.begin(1, 4, weights[4, 1])
    found = averages.evaluated(weights[8], 8)
    torch.testing.assert_close(found, torch.stack([weights[8, 0], weights[5:, 1].mean(0)]))
    averages.keep([1])
    torch.testing.assert_close(averages.evaluated(weights[8, 1:], 8), weights[5:, 1].mean(0, keepdim=True))


class Watching(Silent):
    def __init__(self):
        self.said = []

    def say(self, words):
        self.said.append(words)


def test_averaged_weights_are_evaluated_and_saved_while_training_continues_from_the_others(tmp_path):
    optimiser = Optimiser("sgd", lr=40, clip_norm=0.25, average="when stalled", average_patience=0)
    run = words_run(tmp_path, optimiser=optimiser)
    watching = Watching()
    (result,) = train([run], progress=watching)
    since = averaging_began(metrics(run), run.config.optimiser)
    assert since is not None
    assert since < result["updates"]
    assert any("averaged" in words for words in watching.said)
    from safetensors.torch import load_file

    last = load_file(max((run.directory / "checkpoints").glob("step-*.safetensors")))
    name = "layers.0.weight_ih_l0"
    assert not torch.equal(last[f"model/{name}"], last[f"average/{name}"])


def test_scores_are_perplexities_of_the_whole_text(tmp_path):
    run = words_run(tmp_path)
    (result,) = train([run])
    best = run.make_model()
    best.load_state_dict(weights(run, "best.safetensors"))
    tokens = run.task.source("test", 1, CPU).stream.tokens
    assert result["test"]["perplexity"] == pytest.approx(best.perplexity(tokens.long(), chunk=8), rel=1e-5)
    assert result["test"]["perplexity"] == pytest.approx(math.exp(result["test"]["loss"]))
    assert result["best"]["perplexity"] == min(one["validation"]["perplexity"] for one in metrics(run))
    assert result["best"]["perplexity"] < WORDS.batch * Made().symbols


# Sequences that begin anew.


def test_restart_is_a_probability_and_needs_a_carried_state():
    with pytest.raises(ValueError, match=r"expected training\.restart to be used with training\.stateful only"):
        Training(restart=0.1)
    for chance in (-0.1, 1.0):
        with pytest.raises(ValueError, match=r"expected training\.restart to be at least 0 and below 1, got"):
            Training(restart=chance, stateful=True)


def test_states_of_some_sequences_are_set_to_zero(tmp_path):
    loop = Loop.alone([words_run(tmp_path, restart=0.5, batch=40, jitter=False)], CPU)
    (replica,) = loop.population.replicas
    assert loop.carried(replica) is None  # at the beginning all are
    replica.state = ((torch.ones(1, 40, 3), torch.ones(1, 40, 3)), (torch.ones(1, 40, 2), torch.ones(1, 40, 2)))
    counts = []
    for _ in range(50):
        parts = [part for layer in loop.carried(replica) for part in layer]
        begun = [(part == 0).all(-1).squeeze(0) for part in parts]
        assert all(torch.equal(one, begun[0]) for one in begun)
        assert all(bool(((part == 0) | (part == 1)).all()) for part in parts)
        counts.append(int(begun[0].sum()))
    assert 700 < sum(counts) < 1300  # of 2000
    assert len(set(counts)) > 3
    assert all(bool((part == 1).all()) for layer in replica.state for part in layer)


def test_without_restart_states_are_carried_unchanged(tmp_path):
    loop = Loop.alone([words_run(tmp_path)], CPU)
    loop.population.replicas[0].state = torch.ones(1, 4, 3)
    assert loop.carried(loop.population.replicas[0]) is loop.population.replicas[0].state
