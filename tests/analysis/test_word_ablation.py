"""How long a word stays in memory."""

import json
import math

import numpy
import pytest
import torch

from remanence.analysis.word_ablation import random_positions, word_ablation
from remanence.models.language import LanguageModel
from remanence.timescales import Fixed, InverseGamma

WORDS, UNKNOWN = 9, 0


@torch.no_grad()
def unhearing(timescales):
    """One layer whose forget and input values are constant: only the candidate hears the words."""
    units = len(timescales)
    model = LanguageModel(
        WORDS, units, units, 1, timescales=Fixed(timescales, freeze=True), initial_range=1.0, dtype=torch.float64
    )
    (layer,) = model.layers
    layer.weight_hh_l0.zero_()
    layer.weight_ih_l0.zero_()
    layer.bias_ih_l0[2 * units : 3 * units] = 0
    layer.bias_hh_l0[2 * units : 3 * units] = 0
    layer.weight_ih_l0[2 * units : 3 * units] = torch.eye(units)
    return model


@pytest.fixture
def stream():
    return numpy.random.default_rng(0).integers(0, WORDS, 400)


def test_with_constant_forget_values_a_word_fades_exponentially():
    """The same word throughout, so that cells stand still but for the replaced one."""
    found = word_ablation(unhearing([5.0] * 4), [3] * 300, UNKNOWN, words=40, positions=7, warm_up=200)
    expected = numpy.exp(-numpy.arange(41) / 5)
    assert found.by_layer.shape == (1, 41)
    numpy.testing.assert_allclose(found.by_layer[0], expected, rtol=1e-6)
    assert found.groups is None
    assert found.by_group.shape == (0, 41)
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


def test_every_group_fades_with_its_own_timescale():
    own = [2.0, 8.0, 2.0, 4.0, 8.0, 4.0, 1.0]
    found = word_ablation(unhearing(own), [3] * 300, UNKNOWN, words=15, warm_up=200, layer=0, group=2, positions=3)
    assert [units.tolist() for units in found.groups.units] == [[1, 4], [3, 5], [0, 2], [6]]
    assert found.groups.means == pytest.approx([8, 4, 2, 1])
    for curve, timescale in zip(found.by_group, (8, 4, 2, 1), strict=True):
        numpy.testing.assert_allclose(curve, numpy.exp(-numpy.arange(16) / timescale), rtol=1e-6)
    # All together: slower than the quickest, quicker than the slowest.
    assert math.exp(-1) < found.by_layer[0, 1] < math.exp(-1 / 8)


@torch.no_grad()
def by_hand(model, stream, position, words, warm_up, pick):
    """|c - c'| / |c| at one position, by running two texts from their beginnings."""
    text = torch.as_tensor(stream[position - warm_up : position + words + 1]).unsqueeze(1)
    changed = text.clone()
    changed[warm_up] = UNKNOWN
    model.eval()
    one, two = (pick(model.watch(given)[0])[warm_up:, 0] for given in (text, changed))
    model.train()
    return ((one - two).norm(dim=-1) / one.norm(dim=-1)).numpy()


def test_positions_in_batches_equal_positions_one_by_one(stream, monkeypatch):
    torch.manual_seed(1)
    model = LanguageModel(
        WORDS, 5, 7, 3, timescales=[None, InverseGamma(0.56), None], initial_range=1.0, dtype=torch.float64
    )
    arguments = {"words": 7, "positions": 6, "warm_up": 4, "layer": 1, "group": 3, "seed": 4}
    monkeypatch.setitem(word_ablation.__globals__, "STEPS", 3)
    found = word_ablation(model, stream, UNKNOWN, at_once=4, **arguments)
    assert len(found.positions) == 6
    assert model.training
    picks = [lambda records, n=n: records[n]["cell"] for n in range(3)]
    picks += [lambda records, units=units: records[1]["cell"][..., units] for units in found.groups.units]
    firsts = [*found.by_layer_first, *found.by_group_first]
    for curve, first, pick in zip([*found.by_layer, *found.by_group], firsts, picks, strict=True):
        mean = numpy.mean([by_hand(model, stream, place, 7, 4, pick) for place in found.positions], axis=0)
        assert first == pytest.approx(mean[0])
        numpy.testing.assert_allclose(curve, mean / mean[0], rtol=1e-9)
    again = word_ablation(model, stream, UNKNOWN, at_once=6, **arguments)
    numpy.testing.assert_allclose(again.by_layer, found.by_layer, rtol=1e-9)


def test_positions_have_words_on_both_sides_and_are_not_unknown_already(stream):
    found = random_positions(stream, UNKNOWN, 1000, before=30, after=50)
    allowed = [place for place in range(30, 350) if stream[place] != UNKNOWN]
    assert found.tolist() == allowed
    some = random_positions(stream, UNKNOWN, 20, before=30, after=50, seed=3)
    assert len(set(some.tolist())) == 20
    assert set(some.tolist()) <= set(allowed)
    assert some.tolist() == random_positions(stream, UNKNOWN, 20, before=30, after=50, seed=3).tolist()
    assert some.tolist() != random_positions(stream, UNKNOWN, 20, before=30, after=50, seed=5).tolist()
    assert random_positions(stream[:81], stream[30] + 1, 5, before=30, after=50).tolist() == [30]


@torch.no_grad()
def test_a_word_with_the_vector_of_the_unknown_token_leaves_no_trace():
    model = unhearing([5.0, 2.0])
    model.embedding.weight[3] = model.embedding.weight[UNKNOWN]
    found = word_ablation(model, [3] * 60, UNKNOWN, words=5, warm_up=10, positions=2)
    assert found.by_layer_first.tolist() == [0]
    assert numpy.isnan(found.by_layer).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": 400}, "expected a text with a known word that has 70 words before and 400 after it, got 400 words"),
        ({"positions": 0}, "expected at least one position"),
        ({"warm_up": -1}, "a non-negative number of words"),
        ({"layer": 1}, "expected a layer from 0 to 0, got 1"),
        ({"layer": 0, "group": 0}, "expected groups of at least one unit"),
        ({"unknown": 9}, "expected the unknown token to be one of 9 words, got 9"),
    ],
)
def test_invalid_arguments_are_refused(stream, options, message):
    with pytest.raises(ValueError, match=message):
        word_ablation(**{"model": unhearing([1.0]), "stream": stream, "unknown": UNKNOWN, "words": 20, **options})


def test_layers_without_cells_are_refused(stream):
    with pytest.raises(ValueError, match="expected layers with cells"):
        word_ablation(LanguageModel(WORDS, 4, 4, 1, layer="nru"), stream, UNKNOWN, words=3, positions=1)
