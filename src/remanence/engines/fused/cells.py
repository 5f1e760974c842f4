"""Every cell as two device functions around a gate: one step, and its derivative.

    forward(z, hn, cell, age, p, dt, eps, GATE, COUPLED, HAS_DT, BETA) -> hidden, cell, age
    backward(z, hn, cell, age, p, dt, eps, GATE, GATE_BACK, COUPLED, HAS_DT, BETA, d_hidden, d_cell, d_age)
        -> d_z, d_hn, d_cell, d_age, d_p, d_dt

All tensors are (rows, units) float32 tiles of one program; z is a tuple of the pre-activations of all blocks, in the
order of `GatedCell.blocks`; cell, age are what was carried into the step. hn is the recurrent part of the GRU's
candidate, whose block of z then holds the input's part alone. The GRU carries its hidden state as `cell`.

d_z is a tuple like z. d_hn is the derivative by hn for the GRU.
"""

# ruff: noqa: D103, N803, N806, RUF005
# mypy: ignore-errors

import triton
import triton.language as tl

from .functions import sigmoid, sigmoids, tanh


@triton.jit
def lstm_forward(
    z, hn, cell, age, p, dt, eps, GATE: tl.constexpr, COUPLED: tl.constexpr, HAS_DT: tl.constexpr, BETA: tl.constexpr
):
    F: tl.constexpr = 0 if COUPLED else 1
    forget, complement, age = GATE(z[F], z[len(z) - 1], age, p, dt, eps, HAS_DT)
    written = complement
    if not COUPLED:
        written = sigmoid(z[0])
    cell = forget * cell + written * tanh(z[F + 1])
    return sigmoid(z[F + 2]) * tanh(cell), cell, age


@triton.jit
def lstm_backward(
    z,
    hn,
    cell,
    age,
    p,
    dt,
    eps,
    GATE: tl.constexpr,
    GATE_BACK: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_DT: tl.constexpr,
    BETA: tl.constexpr,
    d_hidden,
    d_cell,
    d_age,
):
    F: tl.constexpr = 0 if COUPLED else 1
    forget, complement, _ = GATE(z[F], z[len(z) - 1], age, p, dt, eps, HAS_DT)
    written = complement
    closed = complement
    if not COUPLED:
        written, closed = sigmoids(z[0])
    candidate = tanh(z[F + 1])
    output, unread = sigmoids(z[F + 2])
    squashed = tanh(forget * cell + written * candidate)

    d_cell += d_hidden * output * (1.0 - squashed * squashed)
    d_forget = d_cell * cell
    if COUPLED:
        d_forget -= d_cell * candidate
    d_z_forget, d_z_extra, d_age, d_p, d_dt = GATE_BACK(z[F], z[len(z) - 1], age, p, dt, eps, HAS_DT, d_forget, d_age)
    d_z_candidate = d_cell * written * (1.0 - candidate * candidate)
    d_z_output = d_hidden * squashed * output * unread
    if COUPLED:
        d_z = (d_z_forget, d_z_candidate, d_z_output)
    else:
        d_z = (d_cell * candidate * written * closed, d_z_forget, d_z_candidate, d_z_output)
    if len(z) > F + 3:
        d_z = d_z + (d_z_extra,)
    return d_z, tl.zeros_like(d_hidden), d_cell * forget, d_age, d_p, d_dt


@triton.jit
def gru_forward(
    z, hn, cell, age, p, dt, eps, GATE: tl.constexpr, COUPLED: tl.constexpr, HAS_DT: tl.constexpr, BETA: tl.constexpr
):
    forget, complement, age = GATE(z[1], z[len(z) - 1], age, p, dt, eps, HAS_DT)
    cell = forget * cell + complement * tanh(z[2] + sigmoid(z[0]) * hn)
    return cell, cell, age


@triton.jit
def gru_backward(
    z,
    hn,
    cell,
    age,
    p,
    dt,
    eps,
    GATE: tl.constexpr,
    GATE_BACK: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_DT: tl.constexpr,
    BETA: tl.constexpr,
    d_hidden,
    d_cell,
    d_age,
):
    forget, complement, _ = GATE(z[1], z[len(z) - 1], age, p, dt, eps, HAS_DT)
    reset, unreset = sigmoids(z[0])
    candidate = tanh(z[2] + reset * hn)
    d_cell += d_hidden
    d_z_forget, d_z_extra, d_age, d_p, d_dt = GATE_BACK(
        z[1], z[len(z) - 1], age, p, dt, eps, HAS_DT, d_cell * (cell - candidate), d_age
    )
    d_z_candidate = d_cell * complement * (1.0 - candidate * candidate)
    d_z = (d_z_candidate * hn * reset * unreset, d_z_forget, d_z_candidate)
    if len(z) > 3:
        d_z = d_z + (d_z_extra,)
    return d_z, d_z_candidate * reset, d_cell * forget, d_age, d_p, d_dt


@triton.jit
def janet_forward(
    z, hn, cell, age, p, dt, eps, GATE: tl.constexpr, COUPLED: tl.constexpr, HAS_DT: tl.constexpr, BETA: tl.constexpr
):
    _, written, _ = GATE(z[0] - BETA, z[len(z) - 1], age, p, dt, eps, HAS_DT)
    forget, _, age = GATE(z[0], z[len(z) - 1], age, p, dt, eps, HAS_DT)
    cell = forget * cell + written * tanh(z[1])
    return cell, cell, age


@triton.jit
def janet_backward(
    z,
    hn,
    cell,
    age,
    p,
    dt,
    eps,
    GATE: tl.constexpr,
    GATE_BACK: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_DT: tl.constexpr,
    BETA: tl.constexpr,
    d_hidden,
    d_cell,
    d_age,
):
    _, written, _ = GATE(z[0] - BETA, z[len(z) - 1], age, p, dt, eps, HAS_DT)
    forget, _, _ = GATE(z[0], z[len(z) - 1], age, p, dt, eps, HAS_DT)
    candidate = tanh(z[1])
    d_cell += d_hidden
    d_z0, d_z2, d_age0, d_p0, d_dt0 = GATE_BACK(z[0], z[len(z) - 1], age, p, dt, eps, HAS_DT, d_cell * cell, d_age)
    d_z1, d_z3, d_age1, d_p1, d_dt1 = GATE_BACK(
        z[0] - BETA, z[len(z) - 1], age, p, dt, eps, HAS_DT, -d_cell * candidate, tl.zeros_like(d_age)
    )
    d_z = (d_z0 + d_z1, d_cell * written * (1.0 - candidate * candidate))
    if len(z) > 2:
        d_z = d_z + (d_z2 + d_z3,)
    return d_z, tl.zeros_like(d_hidden), d_cell * forget, d_age0 + d_age1, d_p0 + d_p1, d_dt0 + d_dt1


DEVICE: dict[str, tuple[triton.JITFunction, triton.JITFunction]] = {
    "lstm": (lstm_forward, lstm_backward),
    "gru": (gru_forward, gru_backward),
    "janet": (janet_forward, janet_backward),
}
"""Forward and backward device functions by the name of the cell."""
