"""Every cell as three device functions around a gate: one step, its slopes, and the derivative from these.

    forward(z, hn, cell, age, p, dt, eps, GATE, COUPLED, HAS_DT, BETA) -> hidden, cell, age
    slopes(z, hn, cell, age, p, dt, eps, GATE_SLOPES, COUPLED, HAS_DT, BETA) -> two tuples: the cell's own, the gate's
    backward(slopes, of_gate, d_hidden, d_cell, d_age, GATE_BACK, COUPLED, HAS_DT, G)
        -> d_z, d_hn, d_cell, d_age, d_p, d_dt

All tensors are (rows, units) float32 tiles of one program; z is a tuple of the pre-activations of all blocks, in the
order of `GatedCell.blocks`; cell, age are what was carried into the step. hn is the recurrent part of the GRU's
candidate, whose block of z then holds the input's part alone. The GRU carries its hidden state as `cell`.

Slopes are what can be computed before the derivatives of a step are known, see `gates`. d_z is a tuple like z, of G
blocks. d_hn is the derivative by hn for the GRU.
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
def lstm_slopes(
    z,
    hn,
    cell,
    age,
    p,
    dt,
    eps,
    GATE_SLOPES: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_DT: tl.constexpr,
    BETA: tl.constexpr,
):
    F: tl.constexpr = 0 if COUPLED else 1
    forget, complement, of_gate = GATE_SLOPES(z[F], z[len(z) - 1], age, p, dt, eps, HAS_DT)
    candidate = tanh(z[F + 1])
    output, unread = sigmoids(z[F + 2])
    if COUPLED:
        squashed = tanh(forget * cell + complement * candidate)
        by_forget, by_candidate, by_input = cell - candidate, complement, complement
    else:
        written, closed = sigmoids(z[0])
        squashed = tanh(forget * cell + written * candidate)
        by_forget, by_candidate, by_input = cell, written, candidate * written * closed
    by_candidate *= 1.0 - candidate * candidate
    by_cell = output * (1.0 - squashed * squashed)
    return (by_cell, squashed * output * unread, forget, by_forget, by_candidate, by_input), of_gate


@triton.jit
def lstm_backward(
    slopes,
    of_gate,
    d_hidden,
    d_cell,
    d_age,
    GATE_BACK: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_DT: tl.constexpr,
    G: tl.constexpr,
):
    by_cell, by_output, forget, by_forget, by_candidate, by_input = slopes
    d_cell += d_hidden * by_cell
    d_z_forget, d_z_extra, d_age, d_p, d_dt = GATE_BACK(of_gate, d_cell * by_forget, d_age, HAS_DT)
    d_z = (d_z_forget, d_cell * by_candidate, d_hidden * by_output)
    if not COUPLED:
        d_z = (d_cell * by_input,) + d_z
    if len(d_z) < G:
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
def gru_slopes(
    z,
    hn,
    cell,
    age,
    p,
    dt,
    eps,
    GATE_SLOPES: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_DT: tl.constexpr,
    BETA: tl.constexpr,
):
    forget, complement, of_gate = GATE_SLOPES(z[1], z[len(z) - 1], age, p, dt, eps, HAS_DT)
    reset, unreset = sigmoids(z[0])
    candidate = tanh(z[2] + reset * hn)
    by_candidate = complement * (1.0 - candidate * candidate)
    return (forget, cell - candidate, by_candidate, hn * reset * unreset, reset), of_gate


@triton.jit
def gru_backward(
    slopes,
    of_gate,
    d_hidden,
    d_cell,
    d_age,
    GATE_BACK: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_DT: tl.constexpr,
    G: tl.constexpr,
):
    forget, by_forget, by_candidate, by_reset, reset = slopes
    d_cell += d_hidden
    d_z_forget, d_z_extra, d_age, d_p, d_dt = GATE_BACK(of_gate, d_cell * by_forget, d_age, HAS_DT)
    d_z_candidate = d_cell * by_candidate
    d_z = (d_z_candidate * by_reset, d_z_forget, d_z_candidate)
    if G > 3:
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
def janet_slopes(
    z,
    hn,
    cell,
    age,
    p,
    dt,
    eps,
    GATE_SLOPES: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_DT: tl.constexpr,
    BETA: tl.constexpr,
):
    _, written, of_writing = GATE_SLOPES(z[0] - BETA, z[len(z) - 1], age, p, dt, eps, HAS_DT)
    forget, _, of_gate = GATE_SLOPES(z[0], z[len(z) - 1], age, p, dt, eps, HAS_DT)
    candidate = tanh(z[1])
    return (forget, cell, candidate, written * (1.0 - candidate * candidate)), (of_gate, of_writing)


@triton.jit
def janet_backward(
    slopes,
    of_gate,
    d_hidden,
    d_cell,
    d_age,
    GATE_BACK: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_DT: tl.constexpr,
    G: tl.constexpr,
):
    forget, cell, candidate, by_candidate = slopes
    d_cell += d_hidden
    d_z0, d_z2, d_age0, d_p0, d_dt0 = GATE_BACK(of_gate[0], d_cell * cell, d_age, HAS_DT)
    d_z1, d_z3, d_age1, d_p1, d_dt1 = GATE_BACK(of_gate[1], -d_cell * candidate, tl.zeros_like(d_age), HAS_DT)
    d_z = (d_z0 + d_z1, d_cell * by_candidate)
    if G > 2:
        d_z = d_z + (d_z2 + d_z3,)
    return d_z, tl.zeros_like(d_hidden), d_cell * forget, d_age0 + d_age1, d_p0 + d_p1, d_dt0 + d_dt1


DEVICE: dict[str, tuple[triton.JITFunction, triton.JITFunction, triton.JITFunction]] = {
    "lstm": (lstm_forward, lstm_slopes, lstm_backward),
    "gru": (gru_forward, gru_slopes, gru_backward),
    "janet": (janet_forward, janet_slopes, janet_backward),
}
"""Device functions by the name of the cell: forward, slopes, backward."""
