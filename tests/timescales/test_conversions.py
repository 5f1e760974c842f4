"""Bias to timescale and back, against the same formulas with 60 decimal digits."""

import math

import mpmath
import pytest
import torch

import remanence as rm
from remanence.timescales import bias_to_timescale, timescale_to_bias

# Float64 carries 16 digits; the steepest formula here (fast, T = 1e7) loses two of them. Nine are promised.
NINE_DIGITS = 1e-9

GATES = ["sigmoid", "fast", "softsign", "refine", "ur"]
TIMESCALES = [float(f"{mantissa}e{power}") for power in range(-3, 7) for mantissa in (1, 3)] + [1e7]
SHORTEST_SOFTSIGN = 1 / 700
"""Below it the bias of softsign, about -exp(1/T), overflows float64."""
REACHABLE = [
    pytest.param(gate, timescale, id=f"{gate}-T={timescale:g}")
    for gate in GATES
    for timescale in TIMESCALES
    if gate != "softsign" or timescale > SHORTEST_SOFTSIGN
]


@pytest.fixture(autouse=True)
def sixty_digits():
    with mpmath.workdps(60):
        yield


def exact_sigmoid(z):
    return 1 / (1 + mpmath.exp(-z))


def exact_refined(f, r):
    return 2 * r * f + (1 - 2 * r) * f**2


def exact_softsign(z):
    larger = (z / 2 / (1 + abs(z) / 2) + 1) / 2  # as printed; for z < 0 it cancels, and f(z) = 1 - f(-z)
    return larger if z >= 0 else 1 / (2 - z)


EXACT = {
    "sigmoid": exact_sigmoid,
    "fast": lambda z: exact_sigmoid(mpmath.sinh(z)),
    "softsign": exact_softsign,
    "refine": lambda z: exact_refined(exact_sigmoid(z), mpmath.mpf("0.5")),
    "ur": lambda z: exact_refined(exact_sigmoid(z), exact_sigmoid(-z)),
}


def exact_timescale(gate, bias):
    return -1 / mpmath.log(EXACT[gate](mpmath.mpf(bias)))


def exact_bias(gate, timescale):
    logit = -mpmath.log(mpmath.expm1(1 / mpmath.mpf(timescale)))
    if gate == "fast":
        return mpmath.asinh(logit)
    if gate == "softsign":
        return mpmath.sign(logit) * mpmath.expm1(abs(logit))
    if gate == "ur":
        # In sigmoid space 2f - 3f^2 + 2f^3 = exp(-1/T); solved for the logit, where the root is well separated.
        def too_large(z):
            f, lost = exact_sigmoid(z), exact_sigmoid(-z)
            g, complement = f * (lost * (1 + lost) + f**2), lost * (lost**2 + f * (1 + f))
            return mpmath.log(g) - mpmath.log(complement) - logit

        return mpmath.findroot(too_large, (logit - 1, logit + 1), solver="anderson")
    return logit


@pytest.mark.parametrize(("gate", "timescale"), REACHABLE)
def test_bias_of_a_timescale_is_right_to_nine_digits(gate, timescale):
    expected = float(exact_bias(gate, timescale))
    assert float(timescale_to_bias(timescale, gate)) == pytest.approx(expected, rel=NINE_DIGITS, abs=1e-12)


@pytest.mark.parametrize(("gate", "timescale"), REACHABLE)
def test_timescale_of_a_bias_is_right_to_nine_digits(gate, timescale):
    bias = float(exact_bias(gate, timescale))
    expected = float(exact_timescale(gate, bias))  # of the rounded bias: the rounding is not the function's error
    assert float(bias_to_timescale(bias, gate)) == pytest.approx(expected, rel=NINE_DIGITS)


@pytest.mark.parametrize(("gate", "timescale"), REACHABLE)
def test_there_and_back_gives_the_same_timescale(gate, timescale):
    assert float(bias_to_timescale(timescale_to_bias(timescale, gate), gate)) == pytest.approx(timescale, rel=1e-9)


def test_softsign_refuses_a_timescale_whose_bias_is_no_float64_number():
    with pytest.raises(ValueError, match=r"^expected .*got 0\.001") as caught:
        timescale_to_bias(1e-3, "softsign")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bias", [-700.0, -30.0, -1.0, 0.0, 0.5, 5.0, 16.0])
def test_sigmoid_timescale_is_one_over_log_of_one_plus_exp_of_minus_bias(bias):
    assert float(bias_to_timescale(bias)) == pytest.approx(
        float(1 / mpmath.log(1 + mpmath.exp(-mpmath.mpf(bias)))), rel=NINE_DIGITS
    )


@pytest.mark.parametrize("gate", ["sigmoid", "fast"])
def test_a_unit_that_forgets_nothing_has_an_infinite_timescale(gate):
    assert bias_to_timescale(torch.tensor([1e4, math.inf]), gate).tolist() == [math.inf, math.inf]


@pytest.mark.parametrize("bias", [-1e4, -60.0, -25.0, -20.0, 36.0, 700.0])
def test_sigmoid_timescale_is_right_to_the_last_digits_at_both_ends(bias):
    exact = float(1 / mpmath.log1p(mpmath.exp(-mpmath.mpf(bias))))
    assert float(bias_to_timescale(bias)) == pytest.approx(exact, rel=1e-15)


@pytest.mark.parametrize(
    ("gate", "timescale", "bias", "printed_to"),
    [
        pytest.param("sigmoid", 3.0, 0.92732, 5e-6, id="multi-timescale-layer-1-first-half"),
        pytest.param("sigmoid", 4.0, 1.25869, 5e-6, id="multi-timescale-layer-1-second-half"),
        pytest.param("sigmoid", 5000.0, 8.52, 5e-3, id="sigmoid-T=5000"),
        pytest.param("fast", 5000.0, 2.84, 5e-3, id="fast-T=5000"),
    ],
)
def test_published_biases(gate, timescale, bias, printed_to):
    assert float(timescale_to_bias(timescale, gate)) == pytest.approx(bias, abs=printed_to)


def test_fast_gate_at_three_and_a_half_has_timescale_of_fifteen_million():
    assert float(bias_to_timescale(3.5, "fast")) == pytest.approx(1.53e7, rel=5e-3)  # printed to three digits


@pytest.mark.parametrize(
    ("gate", "bias"),
    [("sigmoid", 1.0), ("fast", math.asinh(1)), ("softsign", math.e - 1), ("refine", 1.0)],
)
def test_matched_biases_give_an_initial_timescale_of_3_192(gate, bias):
    assert float(bias_to_timescale(bias, gate)) == pytest.approx(3.192, abs=5e-4)
    (layer,) = rm.timescales.of(rm.LSTM(2, 3, gate=gate, forget_bias="matched"))
    assert layer.tolist() == pytest.approx([3.192] * 3, abs=5e-4)


@pytest.mark.parametrize("gate", GATES)
def test_conversions_keep_shape_and_give_float64(gate):
    timescales = torch.tensor([[1.0, 20.0, 300.0], [0.5, 1e5, 3.0]])
    biases = timescale_to_bias(timescales, gate)
    back = bias_to_timescale(biases, gate)
    assert biases.shape == back.shape == (2, 3)
    assert biases.dtype == back.dtype == torch.float64
    assert torch.allclose(back, timescales.double(), rtol=1e-9)


@pytest.mark.parametrize("gate", GATES)
def test_longer_timescales_need_larger_biases(gate):
    biases = timescale_to_bias(torch.logspace(-2, 7, 200, dtype=torch.float64), gate)
    assert bool((biases.diff() > 0).all())


@pytest.mark.parametrize("timescale", [0.0, -1.0, float("nan"), float("inf")], ids=str)
def test_a_timescale_that_is_not_positive_and_finite_is_refused(timescale):
    with pytest.raises(ValueError, match=rf"^expected timescales to be positive and finite, got {timescale}$"):
        timescale_to_bias(timescale)


@pytest.mark.parametrize("convert", [bias_to_timescale, timescale_to_bias])
def test_power_law_refuses_conversion_in_one_sentence(convert):
    with pytest.raises(ValueError, match=r"^expected .*got power_law, which has no bias timescale") as caught:
        convert(1.0, "power_law")
    assert "\n" not in str(caught.value)


def test_a_gate_object_does_as_well_as_its_name():
    assert torch.equal(timescale_to_bias(50.0, rm.gates.Fast()), timescale_to_bias(50.0, "fast"))
