"""Perplexity by frequency of the word."""

import json
import math

import numpy
import pytest
import torch

from remanence.analysis.frequency_bins import (
    BOUNDS,
    binned_sums,
    bins_of,
    both_countings,
    columns,
    perplexity_by_frequency,
)

COUNTS = [20_000, 10_000, 9_999, 1_000, 999, 100, 99, 0]


def test_a_word_is_in_the_bin_whose_least_count_it_reaches():
    assert columns() == (">=10000", "1000-9999", "100-999", "<100", "all")
    assert bins_of(COUNTS).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert bins_of(numpy.array(COUNTS), words=numpy.array([7, 0, 4])).tolist() == [3, 0, 2]
    assert columns((5,)) == (">=5", "<5", "all")
    assert columns(()) == ("all",)


def test_perplexity_is_exp_of_the_mean_loss_of_the_words_of_a_bin():
    found = perplexity_by_frequency([1.0, 3.0, 2.0, 5.0, 6.0], [0, 1, 2, 6, 7], COUNTS)
    assert found.tokens.tolist() == [2, 1, 0, 2, 5]
    assert found.perplexity[[0, 1, 3, 4]] == pytest.approx(numpy.exp([2.0, 2.0, 5.5, 3.4]))
    assert math.isnan(found.perplexity[2])
    assert found.bits == pytest.approx(3.4 / math.log(2))
    plain = found.plain()
    assert plain["perplexity"][2] is None
    assert json.loads(json.dumps(plain)) == plain


def test_without_bounds_there_is_one_column_of_all_words():
    found = perplexity_by_frequency([1.0, 3.0], [0, 1], COUNTS, bounds=())
    assert found.columns == ("all",)
    assert found.tokens.tolist() == [2]
    assert found.perplexity == pytest.approx([math.exp(2)])


def test_tensors_work_as_well_as_arrays():
    generator = torch.Generator().manual_seed(0)
    losses, targets = torch.rand(50, generator=generator), torch.randint(8, (50,), generator=generator)
    found = perplexity_by_frequency(losses, targets.int(), torch.tensor(COUNTS))
    assert found.perplexity[-1] == pytest.approx(float(losses.double().mean().exp()))
    as_arrays = perplexity_by_frequency(losses.numpy(), targets.numpy(), COUNTS)
    numpy.testing.assert_array_equal(found.perplexity, as_arrays.perplexity)


def test_guessing_at_random_has_the_perplexity_of_the_vocabulary_in_every_bin():
    found = perplexity_by_frequency(numpy.full(80, math.log(8)), numpy.arange(80) % 8, COUNTS)
    assert found.perplexity == pytest.approx(8)


def test_losses_of_many_models_are_summed_at_once():
    generator = numpy.random.default_rng(0)
    losses, bins = generator.random((3, 2, 40)), generator.integers(0, 4, 40)
    sums, tokens = binned_sums(losses, bins, 4)
    assert sums.shape == (3, 2, 5)
    assert tokens.sum() == 80
    for number in range(4):
        numpy.testing.assert_allclose(sums[..., number], losses[..., bins == number].sum(-1))
    numpy.testing.assert_allclose(sums[..., 4], losses.sum(-1))


def test_an_infinite_loss_stays_in_its_bin():
    found = perplexity_by_frequency([1.0, math.inf], [0, 7], COUNTS)
    assert found.perplexity[0] == pytest.approx(math.e)
    assert found.perplexity[3] == math.inf


def test_both_countings_ask_the_corpus():
    class Corpus:
        def counts(self, part):
            return {"train": numpy.array([100, 99]), "all": numpy.array([100, 100])}[part]

    found = both_countings([1.0, 2.0], [0, 1], Corpus())
    assert found["train"].tokens.tolist() == [0, 0, 1, 1, 2]
    assert found["all"].tokens.tolist() == [0, 0, 2, 0, 2]
    assert found["train"].perplexity[-1] == found["all"].perplexity[-1]


@pytest.mark.parametrize(
    ("losses", "targets", "counts", "bounds", "message"),
    [
        ([1.0], [0, 1], COUNTS, BOUNDS, "expected one loss for every target"),
        ([], [], COUNTS, BOUNDS, "expected one loss for every target"),
        ([1.0], [8], COUNTS, BOUNDS, "expected words of a vocabulary of 8, got 8"),
        ([1.0], [-1], COUNTS, BOUNDS, "expected words of a vocabulary of 8, got -1"),
        ([1.0], [0.5], COUNTS, BOUNDS, "expected targets to be a one-dimensional array of integers"),
        ([1.0], [0], COUNTS, (100, 1000), "expected bounds of bins in descending order"),
        ([[1.0], [2.0]], [0], COUNTS, BOUNDS, "expected losses of one text"),
    ],
)
def test_invalid_arguments_are_refused(losses, targets, counts, bounds, message):
    with pytest.raises(ValueError, match=message):
        perplexity_by_frequency(losses, targets, counts, bounds=bounds)
