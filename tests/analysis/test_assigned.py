"""Assigned against estimated timescales."""

import json
import math

import numpy
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

from remanence import timescales
from remanence.analysis import assigned_against_estimated, estimated_timescales
from remanence.models.language import LanguageModel


def test_correlations_are_those_of_scipy():
    generator = numpy.random.default_rng(0)
    assigned = numpy.sort(generator.lognormal(1, 2, 60))[::-1]
    estimated = assigned**0.5 * generator.lognormal(0, 0.4, 60)
    estimated[10:20] = estimated[10]  # equal ranks
    found = assigned_against_estimated(assigned, estimated)
    assert found.spearman == pytest.approx(spearmanr(assigned, estimated).statistic)
    assert found.log_pearson == pytest.approx(pearsonr(numpy.log(assigned), numpy.log(estimated)).statistic)
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


def test_a_power_of_the_assigned_is_perfectly_correlated():
    found = assigned_against_estimated(torch.tensor([8.0, 4.0, 2.0, 1.0]), [64.0, 16.0, 4.0, 1.0])
    assert (found.spearman, found.log_pearson) == pytest.approx((1, 1))


def test_zero_and_infinity_have_ranks_but_no_logarithms():
    found = assigned_against_estimated([3.0, 2.0, 1.0, 0.0], [math.inf, 5.0, 4.0, 1.0])
    assert found.spearman == pytest.approx(1)
    assert found.log_pearson == pytest.approx(1)
    assert found.left_out == 2
    assert math.isnan(assigned_against_estimated([1.0, 2.0], [3.0, 3.0]).spearman)


@pytest.mark.parametrize("pair", [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, -2.0], [1.0, 2.0])])
def test_invalid_timescales_are_refused(pair):
    with pytest.raises(ValueError, match="expected"):
        assigned_against_estimated(*pair)


@torch.no_grad()
def test_units_without_input_keep_their_assigned_timescales():
    assigned = timescales.InverseGamma(0.56, freeze=True)
    model = LanguageModel(11, 6, (8, 24), 2, timescales=[None, assigned], tie=False, dtype=torch.float64)
    layer = model.layers[1]
    layer.weight_ih_l0.zero_()
    layer.weight_hh_l0.zero_()
    stream = torch.randint(11, (100,), generator=torch.Generator().manual_seed(0))
    estimated = estimated_timescales(model, stream, chunk=9)
    assert [len(part) for part in estimated] == [8, 24]
    found = assigned_against_estimated(timescales.of(model)[1], estimated[1])
    numpy.testing.assert_allclose(found.estimated, assigned.timescales(24), rtol=1e-6)
    assert (found.spearman, found.log_pearson) == pytest.approx((1, 1))
