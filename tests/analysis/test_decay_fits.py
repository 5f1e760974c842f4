"""Exponential or power law?"""

import json
import math

import numpy
import pytest

from remanence import analysis

STEPS = numpy.arange(201)


@pytest.mark.parametrize("timescale", [1.5, 20.0, 3000.0])
def test_an_exponential_is_recognised(timescale):
    found = analysis.fit_decay(STEPS, 0.8 * numpy.exp(-STEPS / timescale))
    assert found.better == ["exponential"]
    assert found.timescale == pytest.approx([timescale], rel=1e-6)
    assert found.exponential_amplitude == pytest.approx([0.8])
    assert found.exponential_error[0] < 1e-9
    numpy.testing.assert_allclose(found.exponential(STEPS)[:, 0], 0.8 * numpy.exp(-STEPS / timescale), rtol=1e-6)


@pytest.mark.parametrize("exponent", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("age", [1.0, 12.0, 150.0])
def test_a_power_law_is_recognised_at_any_age(exponent, age):
    curve = 2 * (1 + STEPS / age) ** -exponent
    found = analysis.fit_decay(STEPS, curve)
    assert found.better == ["power law"]
    assert found.exponent == pytest.approx([exponent], rel=1e-3)
    assert found.age == pytest.approx([age], rel=1e-3)
    assert found.power_law_amplitude == pytest.approx([2], rel=1e-4)
    numpy.testing.assert_allclose(found.power_law(STEPS)[:, 0], curve, rtol=1e-4)


def test_a_sum_of_similar_exponentials_is_no_power_law():
    curve = numpy.mean([numpy.exp(-STEPS / timescale) for timescale in (9.9, 10.0, 10.1)], 0)
    found = analysis.fit_decay(STEPS, curve)
    assert found.power_law_aic < found.exponential_aic  # it bends a little
    assert found.exponent > 100
    assert found.better == ["exponential"]


def test_a_sum_of_exponentials_of_all_scales_is_a_power_law():
    scales = numpy.geomspace(0.5, 5000, 60)
    curve = (numpy.exp(-STEPS[:, None] / scales) * scales**-0.5).sum(1)
    assert analysis.fit_decay(STEPS, curve).better == ["power law"]


def test_the_curves_of_the_first_figure_are_distinguished():
    curves = analysis.decay_curves(steps=200, rate=0.97, exponent=0.3)
    found = analysis.fit_decay(curves.steps, numpy.stack((curves.exponential, curves.power_law), 1))
    assert found.better == ["exponential", "power law"]
    assert found.timescale[0] == pytest.approx(-1 / math.log(0.97))
    assert (found.exponent[1], found.age[1]) == (pytest.approx(0.3, rel=1e-4), pytest.approx(1, rel=1e-3))


def test_errors_and_criterion_are_those_of_a_straight_line_by_scipy():
    from scipy.stats import linregress

    generator = numpy.random.default_rng(0)
    logs = -STEPS / 30 + generator.normal(0, 0.2, len(STEPS))
    found = analysis.fit_decay(STEPS, numpy.exp(logs))
    line = linregress(STEPS, logs)
    residuals = logs - line.intercept - line.slope * STEPS
    assert found.timescale == pytest.approx([-1 / line.slope])
    assert found.exponential_error == pytest.approx([math.sqrt(numpy.square(residuals).mean())])
    expected = len(STEPS) * math.log(numpy.square(residuals).mean()) + 2 * 3
    assert found.exponential_aic == pytest.approx([expected])
    assert found.power_law_error[0] <= found.exponential_error[0] * 1.001  # it has one more parameter


def test_rounding_is_no_reason_to_prefer_the_form_with_more_parameters():
    curve = numpy.cumprod(numpy.full(201, numpy.float32(0.99)), dtype=numpy.float32)
    assert analysis.fit_decay(STEPS, curve).better == ["exponential"]


def test_a_constant_has_infinite_timescale_and_zero_exponent():
    found = analysis.fit_decay(STEPS, numpy.stack((numpy.ones(201), numpy.linspace(1, 2, 201)), 1))
    assert found.timescale.tolist() == [math.inf, math.inf]
    assert found.exponent.tolist() == [0, 0]
    assert found.better == ["exponential", "exponential"]


def test_curves_are_fitted_down_to_the_floor():
    curve = numpy.exp(-STEPS / 2.0) + 1e-9
    found = analysis.fit_decay(STEPS, curve, floor=1e-4)
    assert found.points.tolist() == [int((curve >= 1e-4).sum())]
    assert found.timescale == pytest.approx([2], rel=1e-3)
    gone = numpy.stack((numpy.where(STEPS < 3, 1.0, 0.0), numpy.full(201, numpy.nan)), 1)
    nothing = analysis.fit_decay(STEPS, gone)
    assert nothing.points.tolist() == [3, 0]
    assert nothing.better == [None, None]
    assert numpy.isnan(nothing.timescale).all()
    plain = nothing.plain()
    assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize(
    ("steps", "curves", "floor", "message"),
    [
        ([0, 1, 2], [1.0, 0.5], 1e-6, "expected one value of every curve for every step"),
        ([0, 0, 1], [1.0, 0.5, 0.2], 1e-6, "expected distinct steps of zero or more"),
        ([-1, 0, 1], [1.0, 0.5, 0.2], 1e-6, "expected distinct steps of zero or more"),
        ([0, 1, 2], [1.0, 0.5, 0.2], 0, "expected a floor above zero"),
    ],
)
def test_wrong_curves_are_refused(steps, curves, floor, message):
    with pytest.raises(ValueError, match=message):
        analysis.fit_decay(steps, curves, floor=floor)
