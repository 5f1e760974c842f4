"""Gates as functions."""

import json
import math

import numpy
import pytest

from remanence.analysis import gate_functions

SLOPES = {
    "softsign": lambda z: 0.25 / (1 + abs(z) / 2) ** 2,
    "sigmoid": lambda z: math.exp(-abs(z)) / (1 + math.exp(-abs(z))) ** 2,
    "fast": lambda z: math.cosh(z) * math.exp(-math.sinh(abs(z))) / (1 + math.exp(-math.sinh(abs(z)))) ** 2,
}
COMPLEMENTS = {
    "softsign": lambda z: 1 / (2 + z) if z >= 0 else (1 - z) / (2 - z),
    "sigmoid": lambda z: 1 / (1 + math.exp(z)),
    "fast": lambda z: 1 / (1 + math.exp(math.sinh(z))),
}


@pytest.mark.parametrize("gate", SLOPES)
def test_values_and_slopes_are_the_closed_forms_to_the_last_digits(gate):
    seen = gate_functions(points=121)
    assert (seen.z[0], seen.z[-1]) == (-6, 6)
    numpy.testing.assert_allclose(seen.slope[gate], [SLOPES[gate](z) for z in seen.z], rtol=1e-12)
    complements = [COMPLEMENTS[gate](z) for z in seen.z]
    numpy.testing.assert_allclose(seen.complement[gate], complements, rtol=1e-12)
    numpy.testing.assert_allclose(seen.forget[gate], complements[::-1], rtol=1e-12)  # all three: phi(-z) = 1 - phi(z)
    assert seen.slope[gate][60] == pytest.approx(0.25)


def test_tails_are_right_where_no_float_is_small_enough():
    seen = gate_functions(points=81)
    assert (seen.tail_z[0], seen.tail_z[-1]) == (0, 8)
    for z, softsign, sigmoid, fast in zip(seen.tail_z, *(seen.tail_log10[name] for name in SLOPES), strict=True):
        assert softsign == pytest.approx(-math.log10(2 + z), rel=1e-12)
        assert sigmoid == pytest.approx(-math.log10(1 + math.exp(z)), rel=1e-12)
        rise = math.sinh(z)
        assert fast == pytest.approx(-(rise + math.log1p(math.exp(-rise))) / math.log(10), rel=1e-12)
    assert seen.tail_log10["fast"][-1] < -600


def test_gates_are_chosen_by_name_and_result_goes_into_a_json_file():
    plain = gate_functions(["refine", "sigmoid"], points=5).plain()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["forget"]["refine"] == pytest.approx(plain["forget"]["sigmoid"])  # its auxiliary gate is at a half
    assert set(plain["slope"]) == {"refine", "sigmoid"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": 1}, "expected at least two points, got 1"),
        ({"gates": ["slow"]}, "expected gate to be one of"),
        ({"gates": ["power_law"]}, "got power_law"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gate_functions(**arguments)
