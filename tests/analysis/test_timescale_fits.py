"""Distributions of timescales."""

import json
import math

import numpy
import pytest
import torch
from scipy.stats import invgamma, kstest, norm

from remanence.analysis.timescale_fits import ALPHAS, MEANS, timescale_fits
from remanence.timescales import InverseGamma


def test_the_grids_are_those_of_the_specification():
    assert ALPHAS[[0, 1, -1]].tolist() == [0.3, 0.35, 3.0]
    assert MEANS[[0, 1, -1]].tolist() == [0.05, 0.1, 3.0]
    assert 1.4 in ALPHAS
    assert 0.5 in MEANS


@pytest.mark.parametrize("alpha", [0.55, 1.4, 2.5])
def test_samples_of_an_inverse_gamma_are_recognised(alpha):
    sample = invgamma.rvs(alpha, size=2700, random_state=5)
    found = timescale_fits(sample)
    assert found.inverse_gamma.best == pytest.approx(alpha, abs=0.101)
    assert found.inverse_gamma.statistic < 0.04
    assert found.better == "inverse gamma"
    assert found.below_10 == pytest.approx(invgamma.cdf(10, alpha), abs=0.03)


def test_one_timescale_for_all_is_a_gaussian():
    found = timescale_fits(norm.rvs(0.5, 0.1, size=2700, random_state=5).clip(0))
    assert found.gaussian.best == 0.5
    assert found.gaussian.statistic < 0.03
    assert found.better == "gaussian"


def test_statistics_are_those_of_scipy():
    sample = invgamma.rvs(1.1, size=83, random_state=0)
    found = timescale_fits(sample, alphas=(0.4, 1.4), means=(0.5, 1.25), sigma=0.3)
    assert found.inverse_gamma.statistics == pytest.approx(
        [kstest(sample, invgamma(alpha).cdf).statistic for alpha in (0.4, 1.4)]
    )
    assert found.gaussian.statistics == pytest.approx(
        [kstest(sample, norm(mean, 0.3).cdf).statistic for mean in (0.5, 1.25)]
    )


def test_quantile_curves_are_those_of_the_specification():
    found = timescale_fits(invgamma.rvs(1.4, size=2700, random_state=1))
    exceeded = numpy.linspace(0, 1, 2701)[1:]
    fit = found.inverse_gamma
    assert fit.best == 1.4
    numpy.testing.assert_allclose(fit.quantiles, invgamma.isf(exceeded, 1.4), rtol=1e-9)
    assert fit.quantiles[0] == pytest.approx(241.5, abs=0.05)
    numpy.testing.assert_allclose(found.gaussian.quantiles, norm.isf(exceeded, found.gaussian.best, 0.1))
    assert (numpy.diff(found.timescales) <= 0).all()


def test_assigned_timescales_fit_their_own_distribution():
    found = timescale_fits(InverseGamma(0.55).timescales(1150))
    assert found.inverse_gamma.best == 0.55
    assert found.inverse_gamma.statistic < 2 / 1150


def test_layers_are_taken_together_and_infinity_is_a_timescale():
    found = timescale_fits([torch.tensor([1.0, math.inf]), torch.tensor([0.0, 20.0], dtype=torch.float64)])
    assert found.timescales.tolist() == [math.inf, 20, 1, 0]
    assert found.below_10 == 0.5
    plain = found.plain()
    assert plain["timescales"][0] is None
    assert plain["gaussian"]["quantiles"][-1] is None
    assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize(
    ("timescales", "options", "message"),
    [
        ([], {}, "expected timescales of at least one unit"),
        ([1.0, math.nan], {}, "expected timescales of at least one unit"),
        ([-1.0], {}, "none below zero"),
        ([1.0], {"alphas": []}, "expected alphas to have at least one value, all finite"),
        ([1.0], {"alphas": [0.0]}, "expected shapes and a standard deviation above zero"),
        ([1.0], {"sigma": 0.0}, "expected shapes and a standard deviation above zero"),
    ],
)
def test_invalid_arguments_are_refused(timescales, options, message):
    with pytest.raises(ValueError, match=message):
        timescale_fits(timescales, **options)
