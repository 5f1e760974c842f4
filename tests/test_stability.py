"""Long sequences, extreme numbers and narrow dtypes."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

import remanence as rm
from remanence.gates import KNOWN, PowerLaw

GATES = ("sigmoid", "fast", "softsign", "refine", "ur", "power_law")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
NARROW = (torch.bfloat16, torch.float16)
CELLS = {
    "lstm-separate": lambda gate, **keywords: rm.LSTM(2, 3, gate=gate, input_gate="separate", **keywords),
    "lstm-coupled": lambda gate, **keywords: rm.LSTM(2, 3, gate=gate, input_gate="coupled", **keywords),
    "gru": lambda gate, **keywords: rm.GRU(2, 3, gate=gate, **keywords),
    "janet": lambda gate, **keywords: rm.JANET(2, 3, gate=gate, **keywords),
    "phased": lambda gate, **keywords: rm.PhasedLSTM(2, 3, gate=gate, **keywords),
}


def word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def parts(state) -> tuple[torch.Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


# Long sequences.


@pytest.mark.long
@pytest.mark.parametrize("variable", [False, True], ids=["unit-steps", "variable-dt"])
def test_power_law_in_float32_stays_with_float64_for_20000_steps(variable):
    steps = 20_000
    torch.manual_seed(0)
    narrow = rm.PowerLawLSTM(2, 6, eps=1e-5 if variable else 1e-3)
    with torch.no_grad():  # resets from hardly ever to often, so that ages from 0 to thousands occur
        narrow.bias_ih_l0[:6] = torch.tensor([-12.0, -9.0, -7.0, -5.0, -2.0, 1.0])
        narrow.p_hat_l0.copy_(torch.linspace(-3, 2, 6))
    wide = copy.deepcopy(narrow).double()
    x = torch.randn(steps, 1, 2)
    dt = torch.empty(steps, 1).uniform_(1e-3, 3) if variable else None
    with torch.no_grad():
        output, (_, cell, age) = narrow(x, None, dt)
        expected, (_, expected_cell, expected_age) = wide(x.double(), None, None if dt is None else dt.double())
    assert expected_age.max() > 2_000
    # 1e-4 is asked for; one rounding is 6e-8, and a recurrent layer with these weights forgets its errors.
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(cell.double(), expected_cell, rtol=0, atol=1e-4)
    torch.testing.assert_close(age.double(), expected_age, rtol=1e-4, atol=1e-9)


# Extreme pre-activations.


def finite(layer: nn.Module, x: torch.Tensor, dt: torch.Tensor | None = None) -> None:
    """Runs forward and backward, and looks at everything that comes out."""
    x = x.clone().requires_grad_()
    output, state = layer(x) if dt is None else layer(x, None, dt)
    for value in (output, *parts(state)):
        assert value.isfinite().all()
    layer.zero_grad()
    total = output.float().mean()
    if "cell" in layer.cell.widths(1, 1):
        total = total + parts(state)[1].mean()
    total.backward()
    assert x.grad.isfinite().all()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("dtype", DTYPES, ids=word)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("cell", CELLS)
def test_pre_activations_of_ten_thousand_stay_finite_forward_and_backward(cell, gate, dtype):
    torch.manual_seed(0)
    layer = CELLS[cell](gate).to(dtype)
    signs = torch.tensor([1e4, -1e4])
    # Through the inputs: weights of one make them pre-activations of +-1e4 in every block at once.
    large_inputs = copy.deepcopy(layer)
    with torch.no_grad():
        large_inputs.weight_ih_l0.copy_(
            torch.eye(2).repeat(len(large_inputs.weight_ih_l0), 1)[: len(layer.weight_ih_l0)]
        )
    x = torch.stack((signs, -signs, signs)).unsqueeze(1).expand(3, 2, 2).to(dtype)
    finite(large_inputs, x)
    # Through the biases, of one sign and the other unit by unit.
    large_biases = copy.deepcopy(layer)
    with torch.no_grad():
        large_biases.bias_ih_l0.copy_(signs.repeat(len(layer.bias_ih_l0))[: len(layer.bias_ih_l0)])
    finite(large_biases, torch.randn(3, 2, 2).to(dtype))
    # Through the recurrent weights.
    large_weights = copy.deepcopy(layer)
    with torch.no_grad():
        large_weights.weight_hh_l0.copy_(torch.randn(layer.weight_hh_l0.shape).sign() * 1e4)
    finite(large_weights, torch.randn(3, 2, 2).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=word)
def test_nru_with_inputs_of_ten_thousand_stays_finite_forward_and_backward(dtype):
    """Nothing saturates here, so weights are small; fifth powers of 1e8 would still overflow float32."""
    torch.manual_seed(0)
    layer = rm.NRU(2, 4, memory_size=4, heads=4).to(dtype)
    with torch.no_grad():
        layer.weight_write_l0.mul_(0.1)
        layer.weight_mh_l0.mul_(0.1)
    signs = torch.tensor([1e4, -1e4])
    finite(layer, torch.stack((signs, -signs, signs)).unsqueeze(1).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=word)
def test_nru_that_writes_nothing_stays_finite(dtype):
    layer = rm.NRU(2, 4, memory_size=4, heads=4).to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    finite(layer, torch.ones(3, 1, 2, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=word)
@pytest.mark.parametrize("z", [-1e4, -1e3, -90.0, -12.0, 12.0, 90.0, 1e3, 1e4])
@pytest.mark.parametrize("gate", GATES)
def test_every_gate_has_finite_values_and_slopes_however_large_its_pre_activation(gate, z, dtype):
    one = KNOWN[gate]()
    for other in (-z, 0.0, z):
        pre = tuple(torch.tensor([v], dtype=dtype, requires_grad=True) for v in (z, other)[: len(one.rows)])
        carried = tuple(torch.tensor([5.0], dtype=dtype, requires_grad=True) for _ in one.carries)
        weights = {name: torch.tensor([other], dtype=dtype, requires_grad=True) for name in one.per_unit}
        step = one(pre, carried, weights, None)
        saturated = 0.0 if (z < 0) != (gate == "power_law") else 1.0
        if gate == "softsign":
            assert step.forget.item() == pytest.approx(saturated, abs=1 / (1 + abs(z)))
        elif gate != "power_law":
            assert step.forget.item() == pytest.approx(saturated, abs=2e-5)
        for value in (step.forget, step.complement):
            slopes = torch.autograd.grad(value, (*pre, *carried, *weights.values()), retain_graph=True)
            assert value.isfinite()
            assert all(slope.isfinite() for slope in slopes)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=word)
@pytest.mark.parametrize("z", [-1e3, 1e3])
def test_fast_gate_is_saturated_and_flat_a_thousand_away(z, dtype):
    given = torch.tensor([z], dtype=dtype, requires_grad=True)
    step = KNOWN["fast"]()((given,), (), {}, None)
    assert step.forget.item() == (1.0 if z > 0 else 0.0)
    assert step.complement.item() == (0.0 if z > 0 else 1.0)
    (slope,) = torch.autograd.grad(step.forget, given)
    assert slope.item() == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=word)
@pytest.mark.parametrize("p", [0.05, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("z", [-1e4, 1e4])
def test_power_law_with_eps_zero_has_finite_slopes_at_a_full_reset(z, p, dtype):
    given = torch.tensor([z], dtype=dtype, requires_grad=True)
    age = torch.zeros(1, dtype=dtype, requires_grad=True)
    step = PowerLaw(p=p, eps=0.0)((given,), (age,), {}, None)
    slopes = torch.autograd.grad(step.forget, (given, age))
    assert step.forget.isfinite()
    assert all(slope.isfinite() for slope in slopes)


# Extreme times.


@pytest.mark.parametrize("dtype", DTYPES, ids=word)
@pytest.mark.parametrize("dt", [0.0, 1e-30, 1e-6, 1e6, 1e30])
@pytest.mark.parametrize("cell", ["lstm-coupled", "lstm-separate", "gru", "janet"])
def test_power_law_with_huge_and_tiny_dt_stays_finite_forward_and_backward(cell, dt, dtype):
    torch.manual_seed(0)
    layer = CELLS[cell]("power_law").to(dtype)
    finite(layer, torch.randn(3, 2, 2).to(dtype), torch.full((3, 2), dt))


@pytest.mark.parametrize("dtype", DTYPES, ids=word)
@pytest.mark.parametrize("dt", [0.0, 1e-30, 1e-6, 1e6, 1e30])
@pytest.mark.parametrize("gate", GATES)
def test_phased_lstm_with_huge_and_tiny_dt_stays_finite(gate, dt, dtype):
    torch.manual_seed(0)
    layer = CELLS["phased"](gate).to(dtype)
    output, state = layer(torch.randn(3, 2, 2).to(dtype), None, torch.full((3, 2), dt))
    for value in (output, *state):
        assert value.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=word)
@pytest.mark.parametrize("p", [0.05, 0.5])
@pytest.mark.parametrize("dt", [1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6, 1e8, 1e12])
@pytest.mark.parametrize("z", [-20.0, -1.0])
def test_power_law_forgets_by_the_printed_amount_over_gaps_of_any_length(z, dt, p, dtype):
    eps, age = 1e-5, 10.0
    step = PowerLaw(p=p, eps=eps)(
        (torch.tensor([z], dtype=dtype),), (torch.tensor([age], dtype=dtype),), {}, torch.tensor([dt], dtype=dtype)
    )
    keep = 1 / (1 + math.exp(z))
    # Eq. 13 at t = 0 before the step: t - k_t = (1 - r)(age + dt), t - dt - k~_t + 1 = (1 - r)(age + 1).
    expected = min((((keep * (age + dt)) + 1) / (keep * (age + 1) + eps)) ** -p, 1.0)
    # The bound asked for over 20,000 steps, here for a single one.
    assert step.forget.item() == pytest.approx(expected, abs=1e-4)
    assert step.complement.item() == pytest.approx(1 - expected, abs=1e-4)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("eps", [1e-3, 1e-5])
@pytest.mark.parametrize("z", [4.0, 8.0, 16.0, 1e4])
def test_power_law_resets_by_the_printed_amount_in_float32(z, eps, p):
    step = PowerLaw(p=p, eps=eps)((torch.tensor([z]),), (torch.tensor([10.0]),), {}, None)
    d = 11 / (1 + math.exp(min(z, 700)))
    expected = ((d + eps) / (d + 1)) ** p
    assert step.forget.item() == pytest.approx(expected, abs=1e-4)


# Narrow dtypes.


@pytest.mark.parametrize("dtype", NARROW, ids=word)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("cell", CELLS)
def test_everything_carried_but_the_hidden_state_is_float32(cell, gate, dtype):
    layer = CELLS[cell](gate).to(dtype)
    output, state = layer(torch.randn(3, 2, 2).to(dtype))
    hidden, *others = parts(state)
    assert output.dtype == hidden.dtype == dtype
    assert len(others) == (cell != "gru") + (gate == "power_law") + (cell == "phased")
    assert all(part.dtype == torch.float32 for part in others)


@pytest.mark.parametrize("dtype", NARROW, ids=word)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("cell", CELLS)
def test_gates_are_float32(cell, gate, dtype):
    layer = CELLS[cell](gate).to(dtype)
    seen = rm.record(layer, torch.randn(3, 2, 2).to(dtype))
    for name in ("forget", "input", "cell", "candidate"):
        assert seen[name].dtype == torch.float32, name


@pytest.mark.parametrize("given", [torch.float32, *NARROW], ids=word)
@pytest.mark.parametrize("dtype", NARROW, ids=word)
def test_a_state_of_either_dtype_is_accepted(dtype, given):
    layer = CELLS["lstm-coupled"]("power_law").to(dtype)
    x = torch.randn(3, 2, 2).to(dtype)
    _, state = layer(x)
    again, _ = layer(x, tuple(part.to(given) for part in state))
    assert again.dtype == dtype


@pytest.mark.parametrize("dtype", NARROW, ids=word)
@pytest.mark.parametrize("gate", [gate for gate in GATES if gate != "power_law"])
def test_timescale_of_5000_really_retains_and_really_forgets(gate, dtype):
    """A forget value of 0.9998 is one in either dtype, and a cell of that dtype would not move at all."""
    assert torch.tensor(math.exp(-1 / 5000)).to(dtype) == 1
    steps = 1_000
    layer = rm.LSTM(1, 2, gate=gate, timescales=rm.timescales.Fixed(5000.0))
    with torch.no_grad():  # nothing but the forget bias acts, and nothing is written
        layer.weight_ih_l0.zero_()
        layer.weight_hh_l0.zero_()
        layer.bias_ih_l0.zero_()
        layer.bias_hh_l0[4:6].zero_()  # candidate
    layer.to(dtype)
    start = torch.zeros(1, 1, 2, dtype=dtype), torch.ones(1, 1, 2)
    with torch.no_grad():
        _, (_, cell) = layer(torch.zeros(steps, 1, 1, dtype=dtype), start)
    (timescale,) = rm.timescales.of(layer)
    # The bias itself is rounded to three digits, which moves the timescale by up to 6 percent (8.5 for 8.517).
    torch.testing.assert_close(timescale, torch.full((2,), 5000.0).double(), rtol=0.06, atol=0)
    # Up to five roundings of 6e-8 a step (refine has that many), 1,000 times over. Kept in dtype, cell would be 1.
    torch.testing.assert_close(cell[0, 0].double(), torch.exp(-steps / timescale), rtol=3e-4, atol=0)


@pytest.mark.parametrize("dtype", NARROW, ids=word)
def test_power_law_in_narrow_dtypes_keeps_counting_beyond_their_integers(dtype):
    steps = 2_500  # integers end at 256 in bfloat16 and at 2048 in float16
    layer = rm.PowerLawLSTM(1, 2, p=0.5)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bias_ih_l0[:2] = -1e4  # no reset
    layer.to(dtype)
    start = torch.zeros(1, 1, 2, dtype=dtype), torch.ones(1, 1, 2), torch.zeros(1, 1, 2)
    with torch.no_grad():
        _, (_, cell, age) = layer(torch.zeros(steps, 1, 1, dtype=dtype), start)
    assert (age == steps).all()
    # (n + 1)^-p, up to eps = 1e-3, which adds p * eps * log(n) or so: under 1 percent.
    torch.testing.assert_close(cell, torch.full_like(cell, (steps + 1) ** -0.5), rtol=1e-2, atol=0)
