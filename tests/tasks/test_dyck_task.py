"""Brackets of two kinds."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remanence.tasks import Dyck2, side_by_side
from remanence.tasks.brackets import PADDING, SYMBOLS, draw, expand, padded, read
from remanence.tasks.dyck import BINS, bin_of, source_of

CPU = torch.device("cpu")
SMALL = Dyck2(longest=30, train_size=60, validation_size=20, test_size=10)

balanced = st.recursive(
    st.sampled_from(["()", "[]"]),
    lambda inner: st.one_of(
        inner.map("({})".format), inner.map("[{}]".format), st.tuples(inner, inner).map("".join), inner
    ),
    max_leaves=12,
)


def coded(*strings, steps=None):
    """Strings as columns of symbols."""
    rows = [bytes(SYMBOLS.index(symbol) for symbol in string) for string in strings]
    return padded(rows, steps or max(map(len, strings)))


def in_words(columns):
    """Columns of symbols as strings."""
    return ["".join(SYMBOLS[symbol] for symbol in column if symbol != PADDING) for column in columns.T]


def naive(string):
    """What may be closed after every symbol, and the timescale of the pair that closes there, else 0."""
    open_ones, stack, found = [], [], []
    for place, symbol in enumerate(string):
        if symbol in "([":
            stack.append(("([".index(symbol) + 1, place))
            found.append(0)
        else:
            kind, start = stack.pop()
            assert ")]"[kind - 1] == symbol
            found.append(place - start + 1)
        open_ones.append(stack[-1][0] if stack else 0)
    assert not stack
    return open_ones, found


class TestGrammar:
    def test_the_leftmost_is_expanded_first(self):
        # S -> SS -> [S]S -> [(S)]S -> [()]S -> [()]
        assert expand(iter([2, 1, 0, 3, 3]), 100) == coded("[()]").tobytes()
        assert expand(iter([3]), 100) == b""

    def test_a_string_is_abandoned_at_the_first_pair_too_many(self):
        assert expand(iter([0, 0, 3]), 2) == coded("(())").tobytes()
        assert expand(iter([0, 0, 0]), 2) is None

    def test_strings_are_balanced_different_and_of_2_to_longest_symbols(self):
        strings = in_words(SMALL.strings("train"))
        every = strings + in_words(SMALL.strings("validation")) + in_words(SMALL.strings("test"))
        assert (len(strings), len(every)) == (60, 90)
        assert len(set(every)) == 90
        for string in every:
            naive(string)
            assert 2 <= len(string) <= 30

    def test_rules_are_equally_frequent(self):
        """Before the same ones are thrown away, "()" comes with probability a quarter times that of nothing inside.

        Nothing comes of S with p = 1/4 + p^2/4; "()" with q = p/4 + 2 p q/4, since SS may leave either side empty.
        """
        nothing = 2 - 3**0.5
        pair = nothing / 4 / (1 - nothing / 2)
        rng = np.random.default_rng(3)
        rules = iter(rng.integers(0, 4, 2_000_000).tolist())
        count = 20_000
        seen = Counter(expand(rules, 20) for _ in range(count))
        for string, expected in ((b"", nothing), (b"\x00\x02", pair), (b"\x01\x03", pair)):
            assert seen[string] / count == pytest.approx(expected, abs=4 * (expected / count) ** 0.5)

    def test_splits_of_the_paper(self):
        task = Dyck2()
        sizes = [task.source(split, 1, CPU).size for split in ("train", "validation", "test")]
        assert sizes == [10_000, 2000, 5000]
        strings = np.concatenate([task.strings(split) for split in ("train", "validation", "test")], axis=1)
        assert len({column.tobytes() for column in strings.T}) == 17_000
        lengths = (strings != PADDING).sum(0)
        assert (lengths.min(), lengths.max()) == (2, 200)
        assert (lengths % 2 == 0).all()
        # A random split: long strings are not in one part.
        assert lengths[:10_000].mean() == pytest.approx(lengths[10_000:].mean(), rel=0.05)

    def test_strings_depend_on_the_seed_of_the_data_alone(self):
        one, other = (SMALL.source("train", seed, CPU).pick(torch.arange(60)) for seed in (1, 2))
        assert torch.equal(one.inputs, other.inputs)
        again = draw(40, 30, np.random.default_rng(5))
        assert again == draw(40, 30, np.random.default_rng(5))
        assert again != draw(40, 30, np.random.default_rng(6))
        changed = Dyck2(**{**vars(SMALL), "data_seed": 1})
        assert not np.array_equal(changed.strings("train"), SMALL.strings("train"))

    def test_no_test_split(self):
        assert Dyck2(**{**vars(SMALL), "test_size": 0}).source("test", 1, CPU) is None

    def test_new_strings_are_not_made(self):
        with pytest.raises(TypeError, match=r"expected pick\(\)"):
            SMALL.source("train", 1, CPU).draw(3, torch.Generator())


class TestReading:
    @settings(deadline=None)
    @given(st.lists(balanced, min_size=1, max_size=6))
    def test_parallel_parsing_equals_parsing_each_string_with_a_stack(self, strings):
        steps = max(map(len, strings)) + 3
        reading = read(coded(*strings, steps=steps))
        for column, string in enumerate(strings):
            open_ones, found = naive(string)
            rest = [0] * (steps - len(string))
            assert reading.open[:, column].tolist() == open_ones + rest
            assert reading.timescales[:, column].tolist() == found + rest

    def test_inputs_targets_and_masks_by_hand(self):
        source = source_of(coded("([])", "[]", steps=20), CPU)
        batch = source.pick(torch.tensor([1, 0]))
        assert batch.inputs.shape == (20, 2, 4)
        assert batch.inputs.is_contiguous()
        assert batch.inputs[:4, 1].argmax(-1).tolist() == [0, 1, 3, 2]
        assert batch.inputs[:4, 1].sum(-1).tolist() == [1, 1, 1, 1]
        assert batch.inputs[2:, 0].eq(0).all()
        assert batch.targets.dtype == batch.inputs.dtype == torch.float32
        assert batch.targets[:5, 1].tolist() == [[1, 0], [0, 1], [1, 0], [0, 0], [0, 0]]
        assert batch.targets[:3, 0].tolist() == [[0, 1], [0, 0], [0, 0]]
        assert batch.lengths.tolist() == [2, 4]
        assert batch.counts.sum(0).tolist() == [2, 4]
        assert batch.counts[:2, 0].all()
        assert batch.groups.tolist() == [0, 1]

    def test_a_source_keeps_bytes(self):
        source = SMALL.source("train", 1, CPU)
        assert [part.dtype for part in source.parts[:2]] == [torch.int8] * 2
        assert source.parts[0].shape == (30, 60)


class TestBins:
    def test_nine_equal_bins_from_2_to_the_longest_as_in_numpy(self):
        for longest in (20, 56, 200):
            found = np.arange(2, longest + 1, 2)
            counts, _ = np.histogram(found, np.linspace(2, longest, BINS + 1))
            assert np.bincount(bin_of(found, longest)).tolist() == counts.tolist()

    def test_names_say_the_smallest_and_the_largest_timescale(self):
        names = [Dyck2().bin_name(number) for number in range(BINS)]
        assert names[:2] == ["accuracy_2_22", "accuracy_24_44"]
        assert names[-1] == "accuracy_178_200"
        assert len(set(names)) == len({Dyck2(longest=20).bin_name(number) for number in range(BINS)}) == BINS


def mean(score):
    return (score.total / score.count).tolist()


class TestScores:
    def batch(self, *strings):
        return source_of(coded(*strings, steps=20), CPU).pick(torch.arange(len(strings)))

    def test_loss_by_hand(self):
        batch = side_by_side([self.batch("()", "[[]]")])
        outputs = torch.randn(1, 20, 2, 2)
        total = 0.0
        for column, string in enumerate(("()", "[[]]")):
            for step, kind in enumerate(naive(string)[0]):
                for bit in range(2):
                    target = float(kind == bit + 1)
                    total += (torch.sigmoid(outputs[0, step, column, bit]).item() - target) ** 2
        assert SMALL.loss(outputs, batch).tolist() == pytest.approx([total / (2 * 6)])
        assert mean(SMALL.scores(outputs, batch)["loss"]) == pytest.approx([total / (2 * 6)])

    def test_padding_has_no_influence(self):
        batch = side_by_side([self.batch("()", "[[]]")])
        outputs = torch.randn(1, 20, 2, 2, requires_grad=True)
        (slope,) = torch.autograd.grad(SMALL.loss(outputs, batch).sum(), outputs)
        assert (slope != 0).all(-1).equal(batch.counts)
        other = torch.where(batch.counts.unsqueeze(-1), outputs, float("nan"))
        assert torch.equal(SMALL.loss(other, batch), SMALL.loss(outputs, batch))
        for name, score in SMALL.scores(other, batch).items():
            assert torch.equal(score.total, SMALL.scores(outputs, batch)[name].total), name

    def test_one_wrong_bit_makes_a_string_wrong_and_a_step(self):
        batch = self.batch("()[]", "([])", "[[[]]]")
        outputs = (2 * batch.targets - 1).unsqueeze(0)
        task = Dyck2(longest=20, train_size=5, validation_size=5)
        scores = task.scores(outputs, side_by_side([batch]))
        assert mean(scores["accuracy"]) == mean(scores["step_accuracy"]) == [1]
        outputs[0, 3, 1, 1] *= -1
        outputs[0, 4, 1, 1] *= -1  # padding
        scores = task.scores(outputs, side_by_side([batch]))
        assert mean(scores["accuracy"]) == pytest.approx([2 / 3])
        assert mean(scores["step_accuracy"]) == pytest.approx([13 / 14])
        by_bin = {name: (score.total.item(), score.count.item()) for name, score in scores.items()}
        assert by_bin["accuracy_2_2"] == (1, 1)
        assert by_bin["accuracy_4_4"] == (0, 1)
        assert by_bin["accuracy_6_6"] == (1, 1)
        assert by_bin["accuracy_18_20"] == (0, 0)

    def test_a_constant_output_is_never_correct(self):
        batch = side_by_side([SMALL.source("train", 1, CPU).pick(torch.arange(60))])
        for answer in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
            outputs = torch.tensor(answer).float().expand(1, 30, 60, 2)
            assert mean(SMALL.scores(outputs, batch)["accuracy"]) == [SMALL.references["accuracy"]]

    def test_replicas_are_scored_each_on_its_own(self):
        source = SMALL.source("train", 1, CPU)
        batches = [source.pick(torch.arange(4) + 4 * number) for number in range(3)]
        outputs = torch.randn(3, 30, 4, 2)
        outputs[1] = 2 * batches[1].targets - 1
        together = side_by_side(batches)
        scores = SMALL.scores(outputs, together)
        assert scores["accuracy"].total.tolist() == [0, 4, 0]
        for number, batch in enumerate(batches):
            alone = side_by_side([batch])
            loss = SMALL.loss(outputs[number : number + 1], alone)
            torch.testing.assert_close(SMALL.loss(outputs, together)[number], loss[0])
