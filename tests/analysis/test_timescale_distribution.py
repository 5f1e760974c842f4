"""Timescales from biases and from gates."""

import json
import math

import numpy
import pytest
import torch
from scipy.stats import invgamma
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import remanence as rm
from remanence import analysis
from remanence.models import LanguageModel
from remanence.timescales import Fixed, InverseGamma

TIMESCALES = [1.0, 3.0, 9.0, 27.0, 81.0]


@torch.no_grad()
def deaf(**arguments):
    """Forget values are those of the biases whatever is heard."""
    layer = rm.LSTM(3, len(TIMESCALES), timescales=Fixed(TIMESCALES), dtype=torch.float64, **arguments)
    layer.weight_hh_l0.zero_()
    layer.weight_ih_l0.zero_()
    return layer


@pytest.mark.parametrize("mean", ["arithmetic", "geometric"])
@pytest.mark.parametrize("gate", ["sigmoid", "fast", "softsign", "refine"])
def test_units_with_set_timescales_have_them_from_both(gate, mean):
    heard = torch.randn(120, 2, 3, dtype=torch.float64)
    found = analysis.timescale_distribution(deaf(gate=gate), heard, mean=mean, bins=4)
    (layer,) = found.layers
    numpy.testing.assert_allclose(layer.from_biases, TIMESCALES)
    numpy.testing.assert_allclose(layer.from_gates, TIMESCALES)
    numpy.testing.assert_allclose(layer.at["from_biases"], [1, 3, 9, 27, 81])
    numpy.testing.assert_allclose(found.edges, TIMESCALES)
    assert layer.counts["from_biases"].sum() == layer.counts["from_gates"].sum() == 5
    assert (layer.gate, layer.exponents) == (gate, None)
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


def test_assigned_inverse_gamma_timescales_are_fitted_as_such():
    model = LanguageModel(30, 8, 400, 2, tie=False, timescales=InverseGamma(1.4), dtype=torch.float64)
    found = analysis.timescale_distribution(model)
    together = found.together("from_biases")
    assert len(together) == 800
    assert analysis.timescale_fits(together).inverse_gamma.best == 1.4
    middle = found.layers[0].at["from_biases"][2]
    assert middle == pytest.approx(invgamma.median(1.4), rel=0.02)
    assert found.layers[0].from_gates is None
    assert found.together("from_gates").tolist() == []


def test_gates_of_all_layers_are_those_that_estimate_finds():
    model = LanguageModel(30, 8, 12)
    text = torch.randint(30, (130,))
    found = analysis.timescale_distribution(model, text)
    for layer, expected in zip(found.layers, analysis.estimated_timescales(model, text), strict=True):
        numpy.testing.assert_allclose(layer.from_gates, expected, rtol=1e-6)
    layer = rm.GRU(3, 4, 2, bidirectional=True)
    heard = pack_sequence([torch.randn(length, 3) for length in (9, 4)])
    found = analysis.timescale_distribution(layer, heard)
    assert [one.name for one in found.layers] == ["l0", "l0_reverse", "l1", "l1_reverse"]
    for one, expected in zip(found.layers, rm.timescales.estimate(layer, heard), strict=True):
        numpy.testing.assert_allclose(one.from_gates, expected, rtol=1e-6)


def test_torchs_own_layer():
    theirs = nn.LSTM(3, 4, batch_first=True)
    heard = torch.randn(2, 9, 3)
    (found,) = analysis.timescale_distribution(theirs, heard).layers
    ours = rm.LSTM.from_torch(theirs)
    numpy.testing.assert_allclose(found.from_biases, rm.timescales.of(ours)[0])
    numpy.testing.assert_allclose(found.from_gates, rm.timescales.estimate(ours, heard)[0])


def test_a_power_law_has_exponents_instead_of_bias_timescales():
    layer = rm.PowerLawLSTM(3, 3)
    with torch.no_grad():
        layer.p_hat_l0.copy_(torch.logit(torch.tensor([0.2, 0.9, 0.4])))
    (found,) = analysis.timescale_distribution(layer, torch.randn(9, 2, 3)).layers
    assert found.from_biases is None
    numpy.testing.assert_allclose(found.exponents, [0.2, 0.9, 0.4], rtol=1e-6)
    assert found.at["exponents"][2] == pytest.approx(0.4)
    assert list(found.counts) == ["from_gates"]
    numpy.testing.assert_allclose(
        analysis.timescale_distribution(rm.PowerLawLSTM(3, 2, p=1.5)).layers[0].exponents, [1.5, 1.5]
    )


def test_infinite_timescales_are_in_no_bin_and_do_no_harm():
    layer = rm.LSTM(3, 4, dtype=torch.float64)
    with torch.no_grad():
        layer.bias_ih_l0[4:8] = torch.tensor([0.0, 1.0, 2.0, 1e4])
        layer.bias_hh_l0.zero_()
    found = analysis.timescale_distribution(layer, percentiles=(0, 50, 100))
    (one,) = found.layers
    assert math.isinf(one.from_biases[3])
    assert math.isinf(one.at["from_biases"][2])
    assert one.counts["from_biases"].sum() == 3
    assert numpy.isfinite(found.edges).all()


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="expected at least one bin, got 0"):
        analysis.timescale_distribution(deaf(), bins=0)
    with pytest.raises(ValueError, match="expected percentiles from 0 to 100"):
        analysis.timescale_distribution(deaf(), percentiles=(50, 101))
    with pytest.raises(ValueError, match="expected a layer with a forget gate, got NRU"):
        analysis.timescale_distribution(rm.NRU(3, 4))
