"""The paired bootstrap."""

import json
import math

import numpy
import pytest
from scipy.stats import bootstrap

from remanence.analysis import bootstrap as module
from remanence.analysis.bootstrap import paired_bootstrap
from remanence.analysis.frequency_bins import bins_of, perplexity_by_frequency

COUNTS = numpy.array([20_000, 5_000, 500, 50])


def text(words=4_230, seed=0, better=0.05):
    """Losses of two models on one text, the second better on rare words, and the words."""
    generator = numpy.random.default_rng(seed)
    targets = generator.choice(4, words, p=[0.4, 0.3, 0.2, 0.1])
    losses = generator.gamma(2.0, 1 + targets)
    return losses, losses + generator.normal(0, 0.1, words) - better * targets, targets


def test_two_blocks_by_hand():
    """Of two blocks a and b a resample is aa, ab or bb, with probabilities 1/4, 1/2, 1/4."""
    first, second = [1.0, 3.0, 2.0, 2.0, 9.0], [1.0, 1.0, 2.0, 4.0, 9.0]
    found = paired_bootstrap(first, second, [0] * 5, [1], bounds=(), block=2, resamples=10_000, seed=3)
    e = math.exp
    both = e(2) - e(2)
    possible = {"aa": e(2) - e(1), "ab": both, "bb": e(2) - e(3)}
    assert found.columns == ("all",)
    assert (found.blocks, found.left_out, found.resamples) == (2, 1, 10_000)
    assert found.difference == pytest.approx([possible["ab"]])
    mean = (possible["aa"] + 2 * possible["ab"] + possible["bb"]) / 4
    variance = ((possible["aa"] - mean) ** 2 + 2 * (possible["ab"] - mean) ** 2 + (possible["bb"] - mean) ** 2) / 4
    assert found.mean == pytest.approx([mean], abs=5 * math.sqrt(variance / 10_000))
    assert found.std == pytest.approx([math.sqrt(variance)], rel=0.03)
    for low, high in ((found.low, found.high), (found.low_999, found.high_999)):
        assert low == pytest.approx([possible["bb"]])
        assert high == pytest.approx([possible["aa"]])
    assert found.significant.tolist() == [False]


@pytest.mark.parametrize("column", range(5))
def test_the_interval_is_that_of_scipy_from_the_same_seed(column):
    first, second, targets = text()
    found = paired_bootstrap(first, second, targets, COUNTS, resamples=2_000, seed=7)
    blocks = len(targets) // 100
    member = (bins_of(COUNTS, words=targets) == column) if column < 4 else numpy.ones(len(targets), dtype=bool)

    def of_blocks(values):
        return (values * member)[: blocks * 100].reshape(blocks, 100).sum(1)

    def difference(one, two, words, axis=-1):
        return numpy.exp(one.sum(axis) / words.sum(axis)) - numpy.exp(two.sum(axis) / words.sum(axis))

    data = of_blocks(first), of_blocks(second), of_blocks(numpy.ones(len(targets)))
    theirs = bootstrap(
        data, difference, paired=True, vectorized=True, n_resamples=2_000, method="percentile",
        rng=numpy.random.default_rng(7),
    )  # fmt: skip
    assert found.difference[column] == pytest.approx(difference(*data))
    assert found.low[column] == pytest.approx(theirs.confidence_interval.low)
    assert found.high[column] == pytest.approx(theirs.confidence_interval.high)
    assert found.mean[column] == pytest.approx(theirs.bootstrap_distribution.mean())
    assert found.std[column] == pytest.approx(theirs.standard_error)


def test_order_statistics_5_and_9996_of_10001_leave_out_a_thousandth(monkeypatch):
    first, second, targets = text()
    differences = numpy.random.default_rng(1).permutation(numpy.arange(1.0, 10_001.0))
    monkeypatch.setattr(module, "_resampled", lambda *_: numpy.tile(differences[:, None], 5))
    found = paired_bootstrap(first, second, targets, COUNTS)
    # The difference of the text as it is, added to them, is the smallest of all or among the first.
    ordered = numpy.sort(numpy.append(differences, found.difference[-1]))
    assert found.low_999[-1] == ordered[5 - 1]
    assert found.high_999[-1] == ordered[9996 - 1]
    assert (found.low[-1], found.high[-1]) == pytest.approx((250.975, 9750.025))


def test_the_999_interval_contains_the_95_interval():
    found = paired_bootstrap(*text(), COUNTS)
    assert (found.low_999 < found.low).all()
    assert (found.low < found.mean).all()
    assert (found.mean < found.high).all()
    assert (found.high < found.high_999).all()
    assert found.significant.tolist() == [False, True, True, True, True]
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


def test_perplexities_are_those_of_the_whole_blocks():
    first, second, targets = text()
    found = paired_bootstrap(first, second, targets, COUNTS, resamples=10)
    assert (found.blocks, found.block, found.left_out) == (42, 100, 30)
    alone = perplexity_by_frequency(first[:4200], targets[:4200], COUNTS)
    numpy.testing.assert_allclose(found.first, alone.perplexity)
    numpy.testing.assert_allclose(found.difference, found.first - found.second)


def test_the_result_depends_on_the_seed_and_not_on_memory(monkeypatch):
    arguments = (*text(), COUNTS)
    one = paired_bootstrap(*arguments, resamples=300, seed=1)
    same = paired_bootstrap(*arguments, resamples=300, seed=1)
    other = paired_bootstrap(*arguments, resamples=300, seed=2)
    assert one.plain() == same.plain()
    assert one.low[-1] != other.low[-1]
    monkeypatch.setattr(module, "AT_ONCE", 42 * 7 + 3)
    in_parts = paired_bootstrap(*arguments, resamples=300, seed=1)
    numpy.testing.assert_allclose(in_parts.low, one.low)
    numpy.testing.assert_allclose(in_parts.high_999, one.high_999)


def test_a_model_does_not_differ_from_itself():
    first, _, targets = text()
    found = paired_bootstrap(first, first, targets, COUNTS, resamples=50)
    assert found.low.tolist() == found.high.tolist() == [0] * 5
    assert not found.significant.any()


def test_resamples_without_a_rare_word_are_counted_and_left_out():
    losses = numpy.random.default_rng(0).gamma(2.0, size=400)
    targets = numpy.zeros(400, dtype=int)
    targets[7] = 3  # one rare word in the first of four blocks; a resample misses it with probability (3/4)^4
    found = paired_bootstrap(losses, 2 * losses, targets, COUNTS, resamples=4_000)
    assert found.undefined[:3].tolist() == [0, 4_000, 4_000]
    assert found.undefined[3] == pytest.approx(4_000 * 0.75**4, rel=0.1)
    assert found.low[3] == pytest.approx(math.exp(losses[7]) - math.exp(2 * losses[7]))
    assert math.isnan(found.low[1])
    assert not found.significant[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"second": [1.0]}, "expected one loss of each model for every target"),
        ({"first": [math.nan] * 4}, "expected finite losses"),
        ({"block": 3}, "expected a text of at least two blocks of 3 words, got 4"),
        ({"block": 0}, "expected blocks of at least one word"),
        ({"resamples": 1}, "two resamples"),
    ],
)
def test_invalid_arguments_are_refused(change, message):
    given = {"first": [1.0] * 4, "second": [1.0] * 4, "targets": [0] * 4, "counts": [1], "block": 2}
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(**{**given, **change})
