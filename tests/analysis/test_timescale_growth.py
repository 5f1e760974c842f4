"""Growth of timescales from metrics."""

import json
import math

import numpy
import pytest
import torch

import remanence as rm
from remanence.analysis import timescale_growth


def test_moments_and_percentiles_are_those_of_the_units():
    generator = numpy.random.default_rng(0)
    values = numpy.exp(generator.normal(2, 2, (3, 40)))
    lines = [{"update": 10 * n, "timescales": row.tolist()} for n, row in enumerate(values)]
    lines.insert(1, {"update": 5, "loss": 0.3})  # a line without timescales
    growth = timescale_growth(lines)
    assert growth.updates.tolist() == [0, 10, 20]
    assert growth.units == 40
    numpy.testing.assert_allclose(growth.mean, values.mean(1))
    numpy.testing.assert_allclose(growth.std, values.std(1, ddof=1))
    numpy.testing.assert_allclose(growth.high, values.mean(1) + values.std(1, ddof=1) / 10)
    numpy.testing.assert_allclose(growth.low, values.mean(1) - values.std(1, ddof=1) / 10)
    numpy.testing.assert_allclose(growth.geometric_mean, numpy.exp(numpy.log(values).mean(1)))
    for part in (5, 25, 50, 75, 95):
        expected = numpy.exp(numpy.percentile(numpy.log(values), part, axis=1))
        numpy.testing.assert_allclose(growth.percentiles[str(part)], expected)
    assert growth.infinite.tolist() == [0, 0, 0]


def test_set_biases_give_set_timescales():
    layer = rm.LSTM(1, 64, gate="fast")
    lines = []
    for update, bias in enumerate((0.5, 2.0, 3.5)):
        with torch.no_grad():
            layer.bias_ih_l0[64:128] = bias
            layer.bias_hh_l0.zero_()
        lines.append({"update": update, "timescales": [part.tolist() for part in rm.timescales.of(layer)]})
    growth = timescale_growth(lines)
    expected = [1 / math.log1p(math.exp(-math.sinh(bias))) for bias in (0.5, 2.0, 3.5)]
    numpy.testing.assert_allclose(growth.mean, expected)
    numpy.testing.assert_allclose(growth.std, 0, atol=1e-6)
    assert growth.mean[-1] == pytest.approx(1.53e7, rel=1e-2)


def test_huge_timescales_do_not_overflow():
    growth = timescale_growth([{"update": 1, "timescales": [1e200, 3e200]}])
    assert growth.mean[0] == pytest.approx(2e200)
    assert growth.std[0] == pytest.approx(math.sqrt(2) * 1e200)


@pytest.mark.parametrize("infinity", [math.inf, None, "inf", "Infinity"])
def test_infinite_timescales_are_counted_and_leave_percentiles_alone(infinity):
    growth = timescale_growth([{"update": 1, "timescales": [1.0, 10.0, 100.0, infinity]}], percentiles=(0, 50, 75, 100))
    assert growth.infinite.tolist() == [1]
    assert growth.mean[0] == growth.std[0] == growth.high[0] == math.inf
    assert growth.percentiles["0"][0] == pytest.approx(1)
    assert growth.percentiles["50"][0] == pytest.approx(math.sqrt(1000))
    assert growth.percentiles["75"][0] == pytest.approx(100)
    assert growth.percentiles["100"][0] == math.inf
    plain = growth.plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["mean"] == [None]


def test_a_band_does_not_go_below_zero():
    growth = timescale_growth([{"update": 1, "timescales": [1e-3] * 999 + [1e9]}])
    assert growth.low[0] == 0


def test_one_unit_is_enough_and_a_run_that_went_back_counts_once():
    lines = [{"update": 1, "timescales": [2.0]}, {"update": 1, "timescales": [3.0]}]
    growth = timescale_growth(lines)
    assert growth.updates.tolist() == [1]
    assert growth.mean.tolist() == [3]
    assert growth.std.tolist() == [0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "expected metrics with 'timescales', got none"),
        ([{"update": 1, "loss": 2.0}], "expected metrics with 'timescales', got none"),
        ([{"update": 1, "timescales": [1.0, -1.0]}], "expected positive timescales, got -1.0"),
        (
            [{"update": 1, "timescales": [1.0]}, {"update": 2, "timescales": [1.0, 2.0]}],
            "expected timescales of the same units in all metrics",
        ),
    ],
)
def test_metrics_that_make_no_sense_are_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        timescale_growth(lines)
