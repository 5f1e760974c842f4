"""Gates of units without input."""

import json

import numpy
import pytest
import torch
from torch import nn

import remanence as rm
from remanence import analysis
from remanence.models import LanguageModel
from remanence.timescales import Fixed


@torch.no_grad()
def test_gates_are_the_sigmoids_of_biases():
    layer = rm.LSTM(2, 3, dtype=torch.float64)
    (found,) = analysis.gates_at_rest(layer)
    expected = torch.sigmoid(layer.bias_ih_l0 + layer.bias_hh_l0).view(4, 3)
    assert list(found.gates) == ["forget", "input", "output"]
    for name, row in (("input", 0), ("forget", 1), ("output", 3)):
        numpy.testing.assert_allclose(found.gates[name], expected[row])
    assert found.ages is None
    (theirs,) = analysis.gates_at_rest(nn.LSTM(2, 3))
    assert list(theirs.gates) == ["forget", "input", "output"]


def test_the_forget_value_is_that_of_the_timescale_in_every_layer():
    model = LanguageModel(9, 4, 5, timescales=[Fixed(3.0), Fixed([1.0, 10.0, 100.0, 7.0, 2.0]), None])
    first, second, third = analysis.gates_at_rest(model)
    numpy.testing.assert_allclose(first.gates["forget"], numpy.exp(-1 / 3), rtol=1e-6)
    numpy.testing.assert_allclose(second.gates["forget"], numpy.exp(-1 / numpy.array([1, 10, 100, 7, 2])), rtol=1e-5)
    numpy.testing.assert_allclose(third.gates["forget"], numpy.exp(-1 / rm.timescales.of(model)[2].numpy()), rtol=1e-6)
    stacked = rm.GRU(3, 4, 2, bidirectional=True, gate="refine")
    assert [one.name for one in analysis.gates_at_rest(stacked)] == ["l0", "l0_reverse", "l1", "l1_reverse"]
    assert "output" not in analysis.gates_at_rest(stacked)[0].gates  # a GRU has none


@torch.no_grad()
def test_a_power_law_comes_to_rest_at_an_age_where_it_decays_exponentially():
    layer = rm.PowerLawLSTM(2, 4, eps=1e-9, dtype=torch.float64)
    resets, p = torch.tensor([0.5, 0.1, 0.001, 1e-30], dtype=torch.float64), torch.tensor([0.2, 0.5, 0.9, 0.3])
    layer.bias_ih_l0[:4] = torch.logit(resets)
    layer.weight_hh_l0.zero_()
    layer.p_hat_l0.copy_(torch.logit(p))
    (found,) = analysis.gates_at_rest(layer)
    numpy.testing.assert_allclose(found.gates["reset"], resets, rtol=1e-6)
    numpy.testing.assert_allclose(found.ages, [1, 9, 999, 1e30], rtol=1e-5)
    numpy.testing.assert_allclose(found.gates["forget"], (1 - resets) ** p, rtol=1e-6)
    # What the layer itself comes to in silence.
    record = rm.record(layer, torch.zeros(400, 1, 2, dtype=torch.float64))
    numpy.testing.assert_allclose(record["age"][-1, 0, :2], [1, 9], rtol=1e-6)
    numpy.testing.assert_allclose(record["forget"][-1, 0, :2], found.gates["forget"][:2], rtol=1e-6)
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


def test_a_layer_without_gates_is_refused():
    with pytest.raises(ValueError, match="expected a layer with a forget gate, got NRU"):
        analysis.gates_at_rest(rm.NRU(3, 4))
