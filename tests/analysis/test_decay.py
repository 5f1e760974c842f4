"""Exponential and power-law decay."""

import json

import numpy
import pytest
import torch

from remanence.analysis import decay_curves
from remanence.gates import PowerLaw


def test_curves_end_and_cross_where_the_specification_says():
    curves = decay_curves()
    assert len(curves.steps) == len(curves.exponential) == len(curves.power_law) == 201
    assert curves.exponential[0] == curves.power_law[0] == 1
    assert round(curves.exponential[-1], 5) == 0.00226
    assert round(curves.power_law[-1], 4) == 0.2037
    assert round(curves.crossing, 1) == 35.4


def test_power_law_is_that_of_the_gate_left_alone():
    gate, cell, age = PowerLaw(p=0.3, eps=0), torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1).double()
    never = (torch.full((1, 1), -800.0, dtype=torch.float64),)
    kept = [1.0]
    for _ in range(200):
        forgetting = gate(never, (age,), {}, None)
        cell, (age,) = cell * forgetting.forget, forgetting.carried
        kept.append(float(cell))
    numpy.testing.assert_allclose(decay_curves().power_law, kept, rtol=1e-12)


@pytest.mark.parametrize(("rate", "exponent"), [(0.97, 0.3), (0.9, 0.2), (0.999, 0.5), (0.6, 0.6)])
def test_at_the_crossing_both_have_kept_the_same(rate, exponent):
    crossing = decay_curves(5, rate, exponent).crossing
    assert crossing > 0
    assert rate**crossing == pytest.approx((crossing + 1) ** -exponent, rel=1e-10)


def test_a_power_law_that_keeps_more_from_the_start_is_never_crossed():
    curves = decay_curves(50, rate=0.5, exponent=0.3)
    assert curves.crossing is None
    assert (curves.power_law[1:] > curves.exponential[1:]).all()


def test_result_goes_into_a_json_file():
    plain = decay_curves(3).plain()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["steps"] == [0, 1, 2, 3]


@pytest.mark.parametrize("arguments", [{"steps": 0}, {"rate": 1.0}, {"exponent": 0.0}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"^expected .*, got "):
        decay_curves(**arguments)
