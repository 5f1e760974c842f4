"""The toy problem: gradient descent and gradient flow of one unit."""

import json
import math

import numpy
import pytest
import torch

from remanence import gates
from remanence.analysis import toy_gradient_flow
from remanence.analysis.toy_gates import KNOWN

# From the specification: after 1, 10, 100, 1000, 10000 steps of gradient descent, as printed.
DESCENT = {
    "sigmoid": ("0.247", "2.87e-02", "1.10e-03", "1.01e-04", "1.001e-05"),
    "fast": ("0.223", "1.36e-04", "8.77e-06", "5.65e-07", "3.92e-08"),
    "softsign": ("0.266", "0.239", "0.1145", "3.90e-02", "1.61e-02"),
    "refine": ("0.230", "4.74e-03", "2.74e-04", "2.56e-05", "2.52e-06"),
}
# At tau = 1e2, 1e4, 1e6 of gradient flow, and the slope over the last two decades.
FLOW = {
    "softsign": (1.145e-1, 1.613e-2, 3.267e-3, -0.347),
    "sigmoid": (1.111e-3, 1.002e-5, 1.000e-7, -1.000),
    "refine": (2.794e-4, 2.517e-6, 2.502e-8, -1.001),
    "fast": (9.420e-6, 3.922e-8, 2.233e-10, -1.122),
}


@pytest.fixture(scope="module")
def flow():
    return toy_gradient_flow()


def as_printed(value, like):
    digits = len(like.split("e")[0].split(".")[1])
    return f"{value:.{digits}e}" if "e" in like else f"{value:.{digits}f}"


def at(places, values, place):
    (found,) = values[numpy.isclose(places, place, rtol=1e-9)]
    return found


@pytest.mark.parametrize("gate", DESCENT)
def test_gradient_descent_gives_the_numbers_of_the_specification(flow, gate):
    found = [at(flow.steps, flow.gates[gate].descent, steps) for steps in (1, 10, 100, 1000, 10_000)]
    assert [as_printed(value, like) for value, like in zip(found, DESCENT[gate], strict=True)] == list(DESCENT[gate])


@pytest.mark.parametrize("gate", FLOW)
def test_gradient_flow_gives_the_numbers_of_the_specification(flow, gate):
    curve = flow.gates[gate]
    found = [at(flow.times, curve.flow, time) for time in (1e2, 1e4, 1e6)]
    assert found == pytest.approx(FLOW[gate][:3], rel=5e-4)
    assert curve.measured_slope == pytest.approx(FLOW[gate][3], abs=6e-4)


def test_bounds_are_those_of_the_specification(flow):
    bounds = {name: curve.bound for name, curve in flow.gates.items()}
    times = flow.times
    numpy.testing.assert_allclose(bounds["softsign"], (30 * times) ** (-1 / 3))
    numpy.testing.assert_allclose(bounds["sigmoid"], 1 / (10 * times))
    numpy.testing.assert_allclose(bounds["refine"], 1 / (40 * times))
    fast = [at(times, bounds["fast"], time) for time in (1e2, 1e4, 1e6)]
    assert fast == pytest.approx([7.1e-6, 3.38e-8, 2.01e-10], rel=6e-3)
    ratios = [
        value / at(times, flow.gates["fast"].flow, time) for value, time in zip(fast, (1e2, 1e4, 1e6), strict=True)
    ]
    assert ratios == pytest.approx([0.76, 0.86, 0.90], abs=6e-3)
    assert flow.gates["fast"].bound_over_flow == pytest.approx(ratios[-1])


def test_fast_bound_solves_its_equation_and_is_missing_where_it_has_no_solution(flow):
    bound, times = flow.gates["fast"].bound, flow.times
    defined = numpy.isfinite(bound)
    numpy.testing.assert_array_equal(defined, 10 * times >= math.e**2 / 4)
    left = bound[defined]
    numpy.testing.assert_allclose(left * numpy.log(left) ** 2, 1 / (10 * times[defined]), rtol=1e-9)


def test_only_the_fast_gate_is_faster_than_one_over_time(flow):
    slopes = {name: (curve.measured_slope, curve.derived_slope) for name, curve in flow.gates.items()}
    assert all(slope < -1.1 for slope in slopes["fast"])
    assert slopes["sigmoid"] == pytest.approx((-1, -1), abs=1e-3)
    assert slopes["refine"] == pytest.approx((-1, -1), abs=2e-3)
    assert slopes["softsign"] == pytest.approx((-1 / 3, -1 / 3), abs=2e-2)
    assert flow.printed_slope == pytest.approx(-1, abs=5e-3)  # what the paper prints does not show it


@pytest.mark.parametrize("name", KNOWN)
def test_toy_gates_are_the_gates_of_the_package(name):
    gate = gates.KNOWN[name]()
    z = torch.linspace(0.05, 3, 60, dtype=torch.float64, requires_grad=True)
    certain = (torch.full_like(z, 60.0),) if name == "refine" else ()  # r = 1
    complement = gate((z, *certain), (), {}, None).complement
    (slope,) = torch.autograd.grad(-complement.sum(), z)
    toy = KNOWN[name]
    for place, left, speed in zip(z.tolist(), complement.tolist(), slope.tolist(), strict=True):
        assert toy.left(place) == pytest.approx(left, rel=1e-12)
        assert toy.start(left) == pytest.approx(place, rel=1e-9)
        assert toy.speed(left) == pytest.approx(speed, rel=1e-9)


def test_descent_is_that_of_autograd_on_the_loss():
    found = toy_gradient_flow(["fast"], steps=20, per_decade=40, time=1000)
    z = torch.tensor(math.asinh(1), dtype=torch.float64, requires_grad=True)
    gate, left = gates.Fast(), {}
    for step in range(1, 21):
        (slope,) = torch.autograd.grad((gate((z,), (), {}, None).forget ** 10 - 1).abs(), z)
        z = (z - slope).detach()
        left[step] = float(gate((z,), (), {}, None).complement)
        z.requires_grad_()
    numpy.testing.assert_allclose(found.gates["fast"].descent, [left[int(step)] for step in found.steps], rtol=1e-9)


def test_result_goes_into_a_json_file_with_null_for_what_is_not_defined(flow):
    plain = flow.plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["gates"]["fast"]["bound"][0] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gates": ["slow"]}, "expected toy gate to be one of"),
        ({"steps": 0}, "expected positive span, steps and per_decade"),
        ({"time": 10.0}, "expected a time of at least 1000"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        toy_gradient_flow(**arguments)
