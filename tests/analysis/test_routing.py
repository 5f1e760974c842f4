"""Group ablation of language models."""

import json

import numpy
import pytest
import torch
from torch.nn.functional import cross_entropy

from remanence.analysis.frequency_bins import perplexity_by_frequency
from remanence.analysis.groups import groups_of_units
from remanence.analysis.routing import losses_without, routing
from remanence.models.language import LanguageModel
from remanence.models.modes import evaluating
from remanence.timescales import InverseGamma

WORDS = 13
LABELS = [
    13285, 175, 65.9, 35.3, 22.2, 15.3, 11.1, 8.5, 6.6, 5.3, 4.3, 3.6, 3.0, 2.5, 2.1, 1.8, 1.5, 1.3, 1.1, 0.9, 0.7, 0.5,
    0.3,
]  # fmt: skip


@pytest.fixture
def model():
    torch.manual_seed(0)
    timescales = [None, InverseGamma(0.56, freeze=True), None]
    model = LanguageModel(WORDS, 6, 10, 3, timescales=timescales, initial_range=1.0, dtype=torch.float64)
    with torch.no_grad():
        for layer in model.layers:
            layer.weight_ih_l0 *= 3  # so that it makes a difference
    return model


@pytest.fixture
def stream():
    return torch.randint(WORDS, (101,), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def one_run(model, stream, silent, layer):
    """Losses of a model whose layers are run one after the other, all words at once, with some outputs set to zero."""
    with evaluating(model):
        values = model.embedding(stream[:-1].unsqueeze(1), torch.float64)
        for number, own in enumerate(model.layers):
            values = own(values)[0]
            if number == layer:
                values = values.clone()
                values[..., silent] = 0
    logits = values @ model.embedding.weight.T + model.decoder.bias
    return cross_entropy(logits[:, 0], stream[1:], reduction="none")


def test_labels_of_23_groups_of_50_are_those_of_the_paper():
    groups = groups_of_units(InverseGamma(0.56).timescales(1150), 50)
    assert len(groups.units) == 23
    for mean, label in zip(groups.means, LABELS, strict=True):
        assert round(mean, 0 if label > 100 else 1) == label
    assert [round(value, 1) for value in groups.longest[1:3]] == [320.7, 94.2]
    assert round(groups.longest[0]) == 359_932
    assert [units.tolist() for units in groups.units[:2]] == [list(range(50)), list(range(50, 100))]
    by_hundred = groups_of_units(InverseGamma(0.56).timescales(1150), 100)
    assert [len(units) for units in by_hundred.units] == [100] * 11 + [50]
    assert by_hundred.means.round(1).tolist()[1:5] == [50.6, 18.7, 9.8, 6.0]


def test_groups_follow_timescales_whatever_the_order_of_units():
    groups = groups_of_units([3.0, 9.0, 1.0, 9.0, 5.0], 2)
    assert [units.tolist() for units in groups.units] == [[1, 3], [4, 0], [2]]
    assert groups.means.tolist() == [9, 4, 1]
    assert groups.longest.tolist() == [9, 5, 1]


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_all_groups_in_one_batch_give_what_one_run_per_group_gives(model, stream, layer):
    units = model.layers[layer].hidden_size
    kept = torch.rand(5, units, generator=torch.Generator().manual_seed(2)) > 0.4
    kept[0] = True
    together = losses_without(model, stream, kept, layer=layer, chunk=7)
    assert together.shape == (5, 100)
    for row, mask in zip(together, kept, strict=True):
        numpy.testing.assert_allclose(row, one_run(model, stream, ~mask, layer), rtol=1e-9)
        alone = losses_without(model, stream, mask.unsqueeze(0), layer=layer, chunk=100)
        numpy.testing.assert_allclose(row, alone[0], rtol=1e-9)
    assert numpy.ptp(together, axis=0).min() > 0
    in_parts = losses_without(model, stream, kept, layer=layer, variants=2)
    numpy.testing.assert_allclose(in_parts, together, rtol=1e-9)


def test_ratios_are_binned_perplexities_over_those_of_the_whole_model(model, stream):
    counts = numpy.array([20_000] * 4 + [2_000] * 4 + [200] * 4 + [20])
    found = routing(model, stream, counts, group=4)
    assert found.columns[0] == ">=10000"
    assert [units.tolist() for units in found.groups.units] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    intact = perplexity_by_frequency(model.token_losses(stream), stream[1:], counts)
    numpy.testing.assert_allclose(found.intact, intact.perplexity, rtol=1e-6)
    assert found.tokens.tolist() == intact.tokens.tolist()
    for number, units in enumerate(found.groups.units):
        alone = perplexity_by_frequency(one_run(model, stream, units, 1), stream[1:], counts)
        numpy.testing.assert_allclose(found.perplexity[number], alone.perplexity, rtol=1e-9)
        numpy.testing.assert_allclose(found.ratio[number], alone.perplexity / found.intact, rtol=1e-9)
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["groups"]["means"] == found.groups.means.tolist()


@torch.no_grad()
def test_only_units_that_the_next_layer_reads_matter(model, stream):
    silent = [1, 5, 8]
    model.layers[2].weight_ih_l0[:, silent] = 0
    found = routing(model, stream, [0] * WORDS, bounds=(), group=1)
    costs_nothing = numpy.isclose(found.ratio[:, 0], 1, rtol=0, atol=1e-12)
    assert numpy.flatnonzero(costs_nothing).tolist() == silent


def test_the_model_is_unchanged(model, stream):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = model.token_losses(stream)
    routing(model, stream, [0] * WORDS)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model.token_losses(stream), losses)
    with pytest.raises(ValueError, match="expected token ids from"):
        routing(model, [99, 1], [0] * WORDS)
    assert not model.layers[1]._forward_hooks


def test_given_timescales_group_units_of_a_layer_without_assigned_ones(model, stream):
    given = numpy.arange(6.0)
    found = routing(model, stream, [0] * WORDS, layer=2, group=3, timescales=given)
    assert [units.tolist() for units in found.groups.units] == [[5, 4, 3], [2, 1, 0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 3}, "expected a layer from 0 to 2, got 3"),
        ({"group": 0}, "expected groups of at least one unit, got 0"),
        ({"timescales": [1.0]}, "expected timescales of 10 units"),
        ({"variants": 0}, "expected chunks of at least one word and one variant"),
        ({"stream": [1]}, "expected a text of at least two words, got 1"),
        ({"counts": [1]}, "expected words of a vocabulary of 1"),
    ],
)
def test_invalid_arguments_are_refused(model, stream, options, message):
    with pytest.raises(ValueError, match=message):
        routing(**{"model": model, "stream": stream, "counts": [0] * WORDS, **options})
