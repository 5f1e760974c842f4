"""Every gate against an independent plain Python implementation of its equation."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

import remanence as rm
from remanence.gates import KNOWN, Forgetting, Gate, PowerLaw

GATES = ("sigmoid", "fast", "softsign", "refine", "ur", "power_law")
MEMORYLESS = GATES[:-1]
TWO_ROWS = ("refine", "ur")
MATCHED_VALUE = 1 / (1 + math.exp(-1))
GRID = [-6.0, -3.0, -1.0, -0.25, -1e-9, 0.0, 1e-9, 0.25, 1.0, 2.5, 3.4]


def test_every_known_gate_is_tested_here():
    assert set(GATES) == set(KNOWN)


# The equations as printed, for one unit, in float64.


def sigma(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def printed_forget(name: str, z: float, z_refine: float = 0.0) -> float:
    if name == "sigmoid":
        return sigma(z)
    if name == "fast":
        return sigma(math.sinh(z))
    if name == "softsign":
        half = z / 2
        return (half / (1 + abs(half)) + 1) / 2
    f, r = sigma(z), sigma(z_refine)
    return r * (1 - (1 - f) ** 2) + (1 - r) * f**2


def reference_time_forgets(resets, p: float, eps: float, dts=None) -> tuple[list[float], list[float]]:
    """Power law forget values, and t - k_t, from the reference time k_t (pLSTM eqs. 5 to 7 and 11 to 13)."""
    t = k = 0.0
    forgets, ages = [], []
    for j, r in enumerate(resets):
        if dts is None:
            t += 1
            k = r * t + (1 - r) * k
            f = ((t - k + 1) / (t - k + eps)) ** -p
        else:
            dt = dts[j]
            t += dt
            k_tilde = r * (t - dt + 1) + (1 - r) * k
            k = r * t + (1 - r) * k
            f = ((t - k + 1) / (t - dt - k_tilde + 1 + eps)) ** -p
        forgets.append(min(f, 1.0))
        ages.append(t - k)
    return forgets, ages


def numbers(*values: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def call(name: str, z: torch.Tensor, z_refine: torch.Tensor | None = None) -> Forgetting:
    """A gate that carries nothing, at these pre-activations."""
    other = torch.zeros_like(z) if z_refine is None else z_refine
    return KNOWN[name]()((z, other) if name in TWO_ROWS else (z,), (), {}, None)


def run_power_law(gate: PowerLaw, z: torch.Tensor, dt: torch.Tensor | None = None, p_hat: float = 0.0):
    """Forget, complement and age at each of the steps z, `(T,)`."""
    age = torch.zeros(1, 1, dtype=z.dtype)
    weights = {"p_hat": torch.full((1,), p_hat, dtype=z.dtype)}
    steps = []
    for j in range(len(z)):
        step = gate((z[j].view(1, 1),), (age,), weights, None if dt is None else dt[j].view(1, 1))
        (age,) = step.carried
        steps.append((step.forget, step.complement, age))
    return tuple(torch.cat(values).flatten() for values in zip(*steps, strict=True))


# Values.


@pytest.mark.parametrize("name", MEMORYLESS)
def test_forget_value_is_the_printed_one(name):
    pairs = [(z, z_refine) for z in GRID for z_refine in (-4.0, -0.5, 0.0, 1.5, 5.0)]
    given_z, given_refine = (numbers(*column) for column in zip(*pairs, strict=True))
    expected = numbers(*(printed_forget(name, *pair) for pair in pairs))
    # Rounding: sinh(z) reaches 200 at z = -6, and its last bit becomes 200 * 2e-16 in the exponent.
    torch.testing.assert_close(call(name, given_z, given_refine).forget, expected, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("name", MEMORYLESS)
def test_forget_and_complement_add_up_to_one(name):
    z, z_refine = (
        part.flatten() for part in torch.meshgrid(*[torch.linspace(-50, 50, 201).double()] * 2, indexing="ij")
    )
    step = call(name, z, z_refine)
    torch.testing.assert_close(step.forget + step.complement, torch.ones_like(z), rtol=0, atol=1e-15)
    assert step.forget.min() >= 0
    assert step.forget.max() <= 1


@pytest.mark.parametrize("eps", [0.0, 1e-5, 1e-3])
def test_power_law_forget_and_complement_add_up_to_one(eps):
    z = torch.from_numpy(np.random.default_rng(1).normal(0, 4, 300))
    forget, complement, _ = run_power_law(PowerLaw(eps=eps), z)
    torch.testing.assert_close(forget + complement, torch.ones_like(z), rtol=0, atol=1e-15)


def exact_complement(name: str, z: float, z_refine: float) -> float:
    """1 - phi with so many digits that the subtraction costs nothing."""
    with localcontext() as context:
        context.prec = 400
        one, half = Decimal(1), Decimal("0.5")
        x, y = Decimal(z), Decimal(z_refine)

        def logistic(v: Decimal) -> Decimal:
            return one / (one + (-v).exp())

        if name == "sigmoid":
            phi = logistic(x)
        elif name == "fast":
            phi = logistic((x.exp() - (-x).exp()) * half)
        elif name == "softsign":
            phi = (x * half / (one + abs(x * half)) + one) * half
        else:
            f, r = logistic(x), logistic(y)
            phi = r * (one - (one - f) ** 2) + (one - r) * f**2
        return float(one - phi)


SATURATED = {
    "sigmoid": [(z, 0.0) for z in (1.0, 20.0, 37.5, 80.0, 200.0)],
    "fast": [(z, 0.0) for z in (0.5, 3.0, 4.5, 6.0, 7.0)],
    "softsign": [(z, 0.0) for z in (1.0, 1e8, 1e16, 1e30)],
    "refine": [(z, r) for z in (1.0, 12.0, 40.0, 100.0) for r in (-40.0, -3.0, 0.0, 3.0, 12.0, 40.0)],
    "ur": [(z, r) for z in (1.0, 12.0, 40.0, 100.0) for r in (-40.0, -3.0, 0.0, 3.0, 12.0, 40.0)],
}


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    # The last bit of sinh(z), up to 550 in float64 and 90 in float32, goes into the exponent of the fast gate.
    [pytest.param(torch.float64, 1e-12, id="float64"), pytest.param(torch.float32, 2e-5, id="float32")],
)
@pytest.mark.parametrize("name", MEMORYLESS)
def test_complement_keeps_its_digits_where_forget_rounds_to_one(name, dtype, rtol):
    smallest = 1e-300 if dtype == torch.float64 else 1e-37
    exact = [(z, r, exact_complement(name, z, r)) for z, r in SATURATED[name]]
    exact = [row for row in exact if row[2] > smallest]
    z, z_refine = (numbers(*column, dtype=dtype) for column in list(zip(*exact, strict=True))[:2])
    step = call(name, z, z_refine)
    assert (step.forget == 1).any()  # else this would test nothing
    expected = numbers(*(value for _, _, value in exact), dtype=dtype)
    torch.testing.assert_close(step.complement, expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("age", [0.0, 3.0, 1e4, 1e9, 1e15, 1e20])
def test_power_law_complement_keeps_its_digits_at_any_age(age, dtype):
    eps, p = 2.0**-10, 0.25  # exact in both dtypes
    step = PowerLaw(p=p, eps=eps)((numbers(-200.0, dtype=dtype),), (numbers(age, dtype=dtype),), {}, None)
    with localcontext() as context:
        context.prec = 100
        d = Decimal(numbers(age, dtype=dtype).item()) + 1  # nothing is reset: d_t = d_{t-1} + 1
        expected = float(1 - ((d + Decimal(eps)) / (d + 1)) ** Decimal(p))
    rtol = 1e-13 if dtype == torch.float64 else 1e-6  # a few roundings
    assert step.complement.item() == pytest.approx(expected, rel=rtol)


def test_power_law_with_the_reset_of_the_authors_code():
    """k_t = r_t (t - eps) + (1 - r_t) k_{t-1}, which is an age of eps after a full reset."""
    eps, p, k, expected = 1e-3, 0.3, 0.0, []
    z = np.random.default_rng(7).normal(0, 3, 200)
    for step, r in enumerate(map(sigma, z), start=1):
        k = r * (step - eps) + (1 - r) * k
        expected.append(((step - k + 1) / (step - k + eps)) ** -p)
    forget, complement, _ = run_power_law(PowerLaw(p=p, eps=eps, reset_age=eps), torch.from_numpy(z))
    np.testing.assert_allclose(forget.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(complement.numpy(), 1 - np.array(expected), rtol=1e-9)
    reset, _, age = run_power_law(PowerLaw(p=0.5, eps=eps, reset_age=eps), torch.full((1,), 50.0, dtype=torch.float64))
    assert reset.item() == pytest.approx((2 * eps / (1 + eps)) ** 0.5)
    assert age.item() == pytest.approx(eps)
    with pytest.raises(ValueError, match=r"^expected reset_age to be a number in \[0, 1\), got 1$"):
        PowerLaw(reset_age=1)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.95, 1.0, 1.7])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 1e-3])
@pytest.mark.parametrize("variable", [False, True], ids=["unit-steps", "variable-dt"])
def test_power_law_equals_the_reference_time_form(p, eps, variable):
    generator = np.random.default_rng(7)
    z = generator.normal(0, 3, 200)
    dts = generator.uniform(0.05, 4, 200) if variable else None
    expected, ages = reference_time_forgets([sigma(v) for v in z], p, eps, dts)
    forget, complement, age = run_power_law(
        PowerLaw(p=p, eps=eps), torch.from_numpy(z), None if dts is None else torch.from_numpy(dts)
    )
    # The printed form subtracts k from t, up to 500: 500 * 2e-16 = 1e-13 absolute in the age, relative to ages of 1e-3.
    torch.testing.assert_close(age, numbers(*ages), rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(forget, numbers(*expected), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(complement, 1 - numbers(*expected), rtol=1e-9, atol=1e-11)


def test_power_law_learned_exponent_is_the_logistic_of_p_hat():
    z = numbers(-1.0, 0.3, -4.0)
    learned = run_power_law(PowerLaw(), z, p_hat=-0.7)
    fixed = run_power_law(PowerLaw(p=sigma(-0.7)), z)
    for one, other in zip(learned, fixed, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-14, atol=0)


def test_power_law_unit_dt_is_no_dt():
    z = torch.from_numpy(np.random.default_rng(3).normal(0, 3, 200))
    for one, other in zip(run_power_law(PowerLaw(), z), run_power_law(PowerLaw(), z, torch.ones_like(z)), strict=True):
        # r + (1 - r) is one up to a rounding; the slope at a full reset is at most 35 (eps = 1e-3).
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("p", [0.05, 0.5, 1.0, 2.5])
def test_power_law_without_reset_decays_as_a_power_of_time(p):
    forget, _, age = run_power_law(PowerLaw(p=p, eps=0.0), torch.full((500,), -1e4).double())
    steps = torch.arange(1, 501).double()
    torch.testing.assert_close(age, steps, rtol=0, atol=0)
    # 500 products, one rounding each.
    torch.testing.assert_close(forget.cumprod(0), (steps + 1) ** -p, rtol=1e-12, atol=0)


@pytest.mark.parametrize("p", [0.05, 0.5, 1.0, 2.5])
@pytest.mark.parametrize("eps", [1e-5, 1e-3])
@pytest.mark.parametrize("dt", [None, 0.1, 1.0, 2.5])
def test_power_law_full_reset_forgets_all_but_eps_to_the_p(p, eps, dt):
    step = PowerLaw(p=p, eps=eps)(
        (numbers(1e4).view(1, 1),), (numbers(37.0).view(1, 1),), {}, None if dt is None else numbers(dt).view(1, 1)
    )
    # The ratio eps is found as one minus a rounded number, 1e-16 / eps.
    assert step.forget.item() == pytest.approx(eps**p, rel=1e-10)
    assert step.carried[0].item() == 0


def test_power_law_full_reset_with_eps_zero_forgets_everything():
    step = PowerLaw(p=1.0, eps=0.0)((numbers(1e4),), (numbers(37.0),), {}, None)
    assert step.forget.item() == pytest.approx(0, abs=1e-15)


@settings(deadline=None, max_examples=300)
@given(
    z=st.floats(-40, 40),
    age=st.floats(0, 1e6),
    dt=st.floats(0, 2e-3),
    p=st.floats(0.01, 3),
    eps=st.sampled_from([1e-5, 1e-3, 0.1]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_power_law_never_amplifies_however_short_the_step(z, age, dt, p, eps, dtype):
    step = PowerLaw(p=p, eps=eps)(
        (numbers(z, dtype=dtype),), (numbers(age, dtype=dtype),), {}, numbers(dt, dtype=dtype)
    )
    assert 0 < step.forget.item() <= 1
    assert 0 <= step.complement.item() <= 1


def test_power_law_step_shorter_than_eps_without_reset_keeps_everything():
    # The printed ratio is above one here: the clamp is what is tested.
    step = PowerLaw(p=0.5, eps=1e-3)((numbers(-1e4),), (numbers(2.0),), {}, numbers(1e-6))
    assert step.forget.item() == 1
    assert step.complement.item() == 0


# Biases, logits and where units start.


@pytest.mark.parametrize(
    ("name", "bias"),
    [("sigmoid", 1.0), ("softsign", math.e - 1), ("fast", math.asinh(1)), ("refine", 1.0)],
)
def test_matched_bias_has_its_closed_form(name, bias):
    first, *others = KNOWN[name]().complete(KNOWN[name]().bias(numbers(1.0)))
    assert first.item() == pytest.approx(bias, abs=1e-15)
    assert all(other.item() == 0 for other in others)


@pytest.mark.parametrize("name", MEMORYLESS)
def test_matched_biases_give_the_same_forget_value_in_every_gate(name):
    gate = KNOWN[name]()
    rows = gate.complete(gate.bias(numbers(1.0)))
    assert gate(rows, (), {}, None).forget.item() == pytest.approx(MATCHED_VALUE, abs=1e-15)


@pytest.mark.parametrize("name", ["fast", "softsign", "refine"])
def test_units_start_at_the_matched_forget_value(name):
    gate = KNOWN[name]()
    forget = gate(gate.initial_biases(5), (), {}, None).forget
    torch.testing.assert_close(forget, torch.full((5,), MATCHED_VALUE).double(), rtol=0, atol=1e-7)
    (timescales,) = rm.timescales.of(rm.LSTM(2, 5, gate=name))
    # -1/log(0.731059) = 3.192 as printed; the bias itself is stored in float32.
    torch.testing.assert_close(timescales, torch.full((5,), -1 / math.log(MATCHED_VALUE)).double(), rtol=1e-6, atol=0)
    assert timescales[0].item() == pytest.approx(3.192, abs=5e-4)


@pytest.mark.parametrize("name", ["sigmoid", "power_law"])
def test_sigmoid_and_power_law_keep_the_initialisation_of_torch(name):
    assert KNOWN[name]().initial_biases(5) is None


@pytest.mark.parametrize("name", MEMORYLESS)
def test_bias_and_logit_are_inverses(name):
    gate = KNOWN[name]()
    logits = torch.linspace(-25, 25, 101).double()
    again = gate.logit(*gate.complete(gate.bias(logits)))
    # asinh and sinh, or expm1 and log1p, of 25: a few roundings of 25.
    torch.testing.assert_close(again, logits, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", MEMORYLESS)
def test_logit_is_that_of_the_forget_value(name):
    gate = KNOWN[name]()
    bias = numbers(*(v for v in GRID if v > -3))
    rows = gate.complete(bias)
    expected = []
    for j in range(len(bias)):
        f = printed_forget(name, *(row[j].item() for row in rows))
        expected.append(math.log(f) - math.log1p(-f))
    # log(1 - f) loses what f close to one has lost: 1e-16 / (1 - f), with 1 - f = 3e-7 at z = 3.4 in the fast gate.
    torch.testing.assert_close(gate.logit(*rows), numbers(*expected), rtol=1e-8, atol=1e-9)


def test_power_law_has_no_bias_timescale_and_says_so():
    with pytest.raises(ValueError, match="power_law"):
        PowerLaw().bias(numbers(1.0))
    with pytest.raises(ValueError, match="power_law"):
        PowerLaw().logit(numbers(1.0))


def test_completion_is_zero_for_refine_and_the_negative_for_ur():
    bias = numbers(-2.0, 0.5, 3.0)
    torch.testing.assert_close(KNOWN["refine"]().complete(bias), (bias, torch.zeros(3).double()))
    torch.testing.assert_close(KNOWN["ur"]().complete(bias), (bias, -bias))


def test_ur_starts_with_forget_values_uniform_between_one_over_h_and_one_minus_it():
    torch.manual_seed(0)
    units = 4000
    bias, refine_bias = KNOWN["ur"]().initial_biases(units)
    torch.testing.assert_close(refine_bias, -bias, rtol=0, atol=0)
    values = 1 / (1 + np.exp(-bias.numpy()))
    margin = 1 / units
    assert values.min() >= margin - 1e-12
    assert values.max() <= 1 - margin + 1e-12
    assert kstest(values, "uniform", (margin, 1 - 2 * margin)).pvalue > 0.01


def test_refine_with_r_one_half_is_the_sigmoid():
    z = torch.linspace(-40, 40, 161).double()
    refined, plain = call("refine", z, torch.zeros_like(z)), call("sigmoid", z)
    torch.testing.assert_close(refined.forget, plain.forget, rtol=1e-15, atol=0)
    torch.testing.assert_close(refined.complement, plain.complement, rtol=1e-15, atol=0)


@pytest.mark.parametrize("r", [0, 1])
def test_refine_at_its_ends_squares_the_forget_value_or_what_is_lost(r):
    z = torch.linspace(-5, 5, 41).double()
    step = call("refine", z, torch.full_like(z, 800.0 if r else -800.0))
    f = 1 / (1 + (-z).exp())
    expected = 1 - (1 - f) ** 2 if r else f**2
    torch.testing.assert_close(step.forget, expected, rtol=1e-13, atol=0)


# p.


def test_p_starts_uniform_and_away_from_zero_and_one():
    torch.manual_seed(0)
    p_hat = PowerLaw().parameters(200_000)["p_hat"]
    p = 1 / (1 + np.exp(-p_hat.numpy()))
    assert kstest(p, "uniform").pvalue > 0.01
    # Of 200,000 draws some twenty lie beyond either bound and are moved onto it.
    assert p.min() == pytest.approx(1e-4, rel=1e-9)
    assert 1 - p.max() == pytest.approx(1e-4, rel=1e-9)


def test_fixed_p_may_exceed_one_and_has_nothing_to_learn():
    gate = PowerLaw(p=1.5)
    assert gate.parameters(3) == {}
    assert gate.per_unit == ()
    assert "p_hat_l0" not in rm.PowerLawLSTM(2, 3, p=1.5).state_dict()
    assert "p_hat_l0" in rm.PowerLawLSTM(2, 3).state_dict()


@pytest.mark.parametrize(
    "wrong", [{"p": 0.0}, {"p": -1.0}, {"p": math.nan}, {"p": math.inf}, {"eps": -1e-3}, {"eps": 1.0}]
)
def test_power_law_refuses_impossible_constants(wrong):
    with pytest.raises(ValueError, match=f"expected {next(iter(wrong))} to be"):
        PowerLaw(**wrong)


# Slopes.


@pytest.mark.parametrize("name", ["sigmoid", "softsign"])
@pytest.mark.parametrize("z", [-1e-12, -0.0, 0.0, 1e-12])
def test_slope_at_zero_is_one_quarter(name, z):
    given_z = numbers(z).requires_grad_()
    step = call(name, given_z)
    (slope,) = torch.autograd.grad(step.forget, given_z, retain_graph=True)
    (opposite,) = torch.autograd.grad(step.complement, given_z)
    assert slope.item() == pytest.approx(0.25, abs=1e-11)
    assert opposite.item() == pytest.approx(-0.25, abs=1e-11)


def slope_of(name: str, z: float) -> float:
    """The printed derivatives."""
    if name == "sigmoid":
        return sigma(z) * sigma(-z)
    if name == "softsign":
        return 0.25 / (1 + abs(z) / 2) ** 2
    return sigma(math.sinh(z)) * sigma(-math.sinh(z)) * math.cosh(z)


@pytest.mark.parametrize("name", ["sigmoid", "softsign", "fast"])
def test_slope_is_the_printed_one(name):
    z = numbers(*GRID).requires_grad_()
    (slope,) = torch.autograd.grad(call(name, z).forget.sum(), z)
    # Autograd takes f (1 - f) from f: 1e-16 / (1 - f), with 1 - f = 3e-7 at z = 3.4 in the fast gate.
    torch.testing.assert_close(slope, numbers(*(slope_of(name, v) for v in GRID)), rtol=1e-8, atol=0)


@pytest.mark.parametrize("name", ["sigmoid", "softsign", "fast", "refine"])
def test_slope_as_a_function_of_the_forget_value_is_the_printed_one(name):
    # Section 3.1 of the specification, for f above one half; refine with r = 1.
    z = numbers(0.3, 1.0, 2.0, 2.5).requires_grad_()
    step = call(name, z, torch.full_like(z, 800.0))
    (slope,) = torch.autograd.grad(step.forget.sum(), z)
    f, u = step.forget.detach(), step.complement.detach()
    expected = {
        "sigmoid": f * u,
        "softsign": u**2,
        "fast": f * u * torch.sqrt(1 + torch.log(f / u) ** 2),
        "refine": 2 * u * (1 - torch.sqrt(u)),
    }[name]
    torch.testing.assert_close(slope, expected, rtol=1e-12, atol=0)


POWER_LAW_POINTS = [
    pytest.param(z, age, p, eps, id=f"z{z}-age{age}-p{p}-eps{eps}")
    for z, age in [(-2.0, 0.0), (0.4, 5.0), (3.0, 40.0)]
    for p in (0.2, 0.5, 0.9, 1.5)
    for eps in (0.0, 1e-5, 1e-3)
]


def power_law_slopes(z: float, age: float, p: float, eps: float, dt: float | None = None):
    """Slopes of f by autograd: in r and in d_{t-1}."""
    given_z, given_age = numbers(z).requires_grad_(), numbers(age).requires_grad_()
    step = PowerLaw(p=p, eps=eps)((given_z,), (given_age,), {}, None if dt is None else numbers(dt))
    in_z, in_age = torch.autograd.grad(step.forget, (given_z, given_age))
    return in_z.item() / (sigma(z) * sigma(-z)), in_age.item()


@pytest.mark.parametrize(("z", "age", "p", "eps"), POWER_LAW_POINTS)
def test_power_law_slopes_in_reset_and_reference_time(z, age, p, eps):
    in_reset, in_age = power_law_slopes(z, age, p, eps)
    keep = sigma(-z)
    d = keep * (age + 1)
    f = ((d + eps) / (d + 1)) ** p
    df_dd = p * f * (1 / (d + eps) - 1 / (d + 1))
    assert in_reset == pytest.approx(-(age + 1) * df_dd, rel=1e-11)
    # k_t = t - d_t and d_t = (1 - r)(d_{t-1} + 1): df/dk = -df/dd, reached through d_{t-1}.
    df_dk = -in_age / keep
    assert df_dk == pytest.approx(-df_dd, rel=1e-11)
    if eps == 0:  # eq. 9
        assert df_dk == pytest.approx(-p * d ** (p - 1) / (d + 1) ** (p + 1), rel=1e-11)


@pytest.mark.parametrize("p", [0.3, 0.7])
@pytest.mark.parametrize("dt", [0.1, 1.0, 2.5])
@pytest.mark.parametrize("z", [-2.0, 0.4, 2.0])
def test_power_law_slope_in_reset_with_variable_dt_is_eq_15(z, dt, p):
    age = 3.0
    in_reset, _ = power_law_slopes(z, age, p, 0.0, dt)
    r, elapsed = sigma(z), age + dt  # t - k_{t - dt}
    a, b, c = elapsed + 1, -elapsed, elapsed + 1 - dt
    expected = -p * (c - c * r) ** (p - 1) / (a + b * r) ** (p + 1) * c * (a + b)
    assert in_reset == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("eps", [0.0, 1e-3])
@pytest.mark.parametrize("p_hat", [-3.0, 0.0, 2.0])
def test_power_law_slope_in_p(p_hat, eps):
    given_p = numbers(p_hat).requires_grad_()
    step = PowerLaw(eps=eps)((numbers(0.4),), (numbers(5.0),), {"p_hat": given_p}, None)
    (slope,) = torch.autograd.grad(step.forget.log(), given_p)
    d, p = sigma(-0.4) * 6, sigma(p_hat)
    assert slope.item() == pytest.approx((math.log(d + eps) - math.log1p(d)) * p * (1 - p), rel=1e-12)


@pytest.mark.parametrize(
    ("eps", "p", "printed"),
    [
        (1e-3, 0.05, 35.4),
        (1e-3, 0.5, 15.8),
        (1e-3, 0.95, 1.34),
        (1e-5, 0.05, 2812),
        (1e-5, 0.5, 158),
        (1e-5, 0.95, 1.7),
    ],
)
def test_power_law_slope_at_a_full_reset_has_the_printed_size(eps, p, printed):
    z = 36.0  # keep = 2e-16: a reset that autograd can still see through
    _, in_age = power_law_slopes(z, 10.0, p, eps)
    slope = in_age / sigma(-z)
    assert slope == pytest.approx(p * eps**p * (1 / eps - 1), rel=1e-9)
    assert slope == pytest.approx(printed, rel=0.05 if printed == 1.7 else 5e-3)  # as many digits as printed


@settings(deadline=None, max_examples=200)
@given(z=st.floats(-30, 30), age=st.floats(0, 1e5), p=st.floats(0.01, 1))
def test_eps_bounds_the_slope_of_the_power_law(z, age, p):
    eps = 1e-3
    in_reset, in_age = power_law_slopes(z, age, p, eps)
    bound = p * eps**p * (1 / eps - 1) * (1 + 1e-9)
    assert 0 <= in_age / sigma(-z) <= bound
    assert 0 <= -in_reset <= bound * (age + 1)


# A gate of one's own.


class Halved(Gate):
    """The logistic function, written with tanh, by someone who gave it nothing but a name and a call."""

    name = "halved"

    def __call__(self, pre, carried, weights, dt):
        (z,) = pre
        forget = (1 + torch.tanh(z / 2)) / 2
        return Forgetting(forget, 1 - forget)


@pytest.mark.parametrize("layer", [rm.LSTM, rm.GRU, rm.JANET, rm.PhasedLSTM])
def test_gate_with_only_a_name_and_a_call_works_in_every_cell(layer):
    torch.manual_seed(0)
    own = layer(3, 4, gate=Halved(), dtype=torch.float64)
    known = layer(3, 4, gate="sigmoid", dtype=torch.float64)
    known.load_state_dict(own.state_dict())
    x = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    outputs = [each(x)[0] for each in (own, known)]  # without a warning: kernels are derived
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-14)
    slopes = [torch.autograd.grad(output.square().sum(), x)[0] for output in outputs]
    torch.testing.assert_close(*slopes, rtol=1e-11, atol=1e-13)


def test_gate_without_timescales_says_so():
    with pytest.raises(ValueError, match="halved"):
        Halved().logit(numbers(1.0))
    with pytest.raises(ValueError, match="halved"):
        Halved().bias(numbers(1.0))
