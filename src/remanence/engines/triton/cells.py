"""Every cell as three device functions around a gate: one step, its slopes, and the backward step that uses them.

    forward(z, hn, cell, carried, fixed, dt, GATE, ROWS, COUPLED, BETA) -> hidden, cell, carried
    slopes(z, hn, cell, carried, fixed, dt, GATE_SLOPES, ROWS, COUPLED, BETA) -> slopes of the cell, slopes of the gate
    backward(slopes, of_gate, d_hidden, d_cell, d_carried, GATE_BACK, ROWS, COUPLED)
        -> d_z, d_hn, d_cell, d_carried, d_fixed, d_dt

All tensors are (rows, units) float32 tiles of one program. z is a tuple of the pre-activations of all blocks, in the
order of `GatedCell.blocks`; cell and carried (a tuple) are the state before the step; fixed is a tuple of the values
that depend only on the gate's weights. hn is the recurrent part of the GRU's candidate, whose block of z then holds the
input part alone. The GRU carries its hidden state as `cell`. The gate's functions are derived from its equation, see
`kernels.derive.triton`.

Slopes are the local derivatives of a step: everything that can be computed before its incoming gradients are known. d_z
is a tuple like z. d_hn is the gradient of hn, for the GRU.
"""

# ruff: noqa: D103, N803, N806, RUF005
# mypy: ignore-errors

import triton
import triton.language as tl

from .functions import sigmoid, sigmoids, tanh


@triton.jit
def gate_rows(first, z, ROWS: tl.constexpr):
    """The pre-activations of a gate: the first row, and those that follow the blocks of the cell."""
    rows = (first,)
    for row in tl.static_range(1, ROWS):
        rows = rows + (z[len(z) - ROWS + row],)
    return rows


@triton.jit
def with_extra_rows(d_z, d_rows, ROWS: tl.constexpr):
    """Gradients of all blocks: those of the cell's blocks, followed by those of the gate's other rows."""
    for row in tl.static_range(1, ROWS):
        d_z = d_z + (d_rows[row],)
    return d_z


@triton.jit
def added(a, b):
    """Elementwise sum of two tuples."""
    total = ()
    for i in tl.static_range(len(a)):
        total = total + (a[i] + b[i],)
    return total


@triton.jit
def zeros_like_all(a):
    total = ()
    for i in tl.static_range(len(a)):
        total = total + (tl.zeros_like(a[i]),)
    return total


@triton.jit
def lstm_forward(
    z, hn, cell, carried, fixed, dt, GATE: tl.constexpr, ROWS: tl.constexpr, COUPLED: tl.constexpr, BETA: tl.constexpr
):
    F: tl.constexpr = 0 if COUPLED else 1
    forget, complement, carried = GATE(gate_rows(z[F], z, ROWS), carried, fixed, dt)
    written = complement
    if not COUPLED:
        written = sigmoid(z[0])
    cell = forget * cell + written * tanh(z[F + 1])
    return sigmoid(z[F + 2]) * tanh(cell), cell, carried


@triton.jit
def lstm_slopes(
    z,
    hn,
    cell,
    carried,
    fixed,
    dt,
    GATE_SLOPES: tl.constexpr,
    ROWS: tl.constexpr,
    COUPLED: tl.constexpr,
    BETA: tl.constexpr,
):
    F: tl.constexpr = 0 if COUPLED else 1
    forget, complement, of_gate = GATE_SLOPES(gate_rows(z[F], z, ROWS), carried, fixed, dt)
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
    d_carried,
    GATE_BACK: tl.constexpr,
    ROWS: tl.constexpr,
    COUPLED: tl.constexpr,
):
    by_cell, by_output, forget, by_forget, by_candidate, by_input = slopes
    d_cell += d_hidden * by_cell
    d_rows, d_carried, d_fixed, d_dt = GATE_BACK(of_gate, d_cell * by_forget, d_carried)
    d_z = (d_rows[0], d_cell * by_candidate, d_hidden * by_output)
    if not COUPLED:
        d_z = (d_cell * by_input,) + d_z
    d_z = with_extra_rows(d_z, d_rows, ROWS)
    return d_z, tl.zeros_like(d_hidden), d_cell * forget, d_carried, d_fixed, d_dt


@triton.jit
def gru_forward(
    z, hn, cell, carried, fixed, dt, GATE: tl.constexpr, ROWS: tl.constexpr, COUPLED: tl.constexpr, BETA: tl.constexpr
):
    forget, complement, carried = GATE(gate_rows(z[1], z, ROWS), carried, fixed, dt)
    cell = forget * cell + complement * tanh(z[2] + sigmoid(z[0]) * hn)
    return cell, cell, carried


@triton.jit
def gru_slopes(
    z,
    hn,
    cell,
    carried,
    fixed,
    dt,
    GATE_SLOPES: tl.constexpr,
    ROWS: tl.constexpr,
    COUPLED: tl.constexpr,
    BETA: tl.constexpr,
):
    forget, complement, of_gate = GATE_SLOPES(gate_rows(z[1], z, ROWS), carried, fixed, dt)
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
    d_carried,
    GATE_BACK: tl.constexpr,
    ROWS: tl.constexpr,
    COUPLED: tl.constexpr,
):
    forget, by_forget, by_candidate, by_reset, reset = slopes
    d_cell += d_hidden
    d_rows, d_carried, d_fixed, d_dt = GATE_BACK(of_gate, d_cell * by_forget, d_carried)
    d_z_candidate = d_cell * by_candidate
    d_z = with_extra_rows((d_z_candidate * by_reset, d_rows[0], d_z_candidate), d_rows, ROWS)
    return d_z, d_z_candidate * reset, d_cell * forget, d_carried, d_fixed, d_dt


@triton.jit
def janet_forward(
    z, hn, cell, carried, fixed, dt, GATE: tl.constexpr, ROWS: tl.constexpr, COUPLED: tl.constexpr, BETA: tl.constexpr
):
    _, written, _ = GATE(gate_rows(z[0] - BETA, z, ROWS), carried, fixed, dt)
    forget, _, carried = GATE(gate_rows(z[0], z, ROWS), carried, fixed, dt)
    cell = forget * cell + written * tanh(z[1])
    return cell, cell, carried


@triton.jit
def janet_slopes(
    z,
    hn,
    cell,
    carried,
    fixed,
    dt,
    GATE_SLOPES: tl.constexpr,
    ROWS: tl.constexpr,
    COUPLED: tl.constexpr,
    BETA: tl.constexpr,
):
    _, written, of_writing = GATE_SLOPES(gate_rows(z[0] - BETA, z, ROWS), carried, fixed, dt)
    forget, _, of_gate = GATE_SLOPES(gate_rows(z[0], z, ROWS), carried, fixed, dt)
    candidate = tanh(z[1])
    return (forget, cell, candidate, written * (1.0 - candidate * candidate)), (of_gate, of_writing)


@triton.jit
def janet_backward(
    slopes,
    of_gate,
    d_hidden,
    d_cell,
    d_carried,
    GATE_BACK: tl.constexpr,
    ROWS: tl.constexpr,
    COUPLED: tl.constexpr,
):
    forget, cell, candidate, by_candidate = slopes
    d_cell += d_hidden
    d_rows, d_carried0, d_fixed, d_dt = GATE_BACK(of_gate[0], d_cell * cell, d_carried)
    more, d_carried1, d_fixed1, d_dt1 = GATE_BACK(of_gate[1], -d_cell * candidate, zeros_like_all(d_carried))
    d_rows = added(d_rows, more)
    d_z = with_extra_rows((d_rows[0], d_cell * by_candidate), d_rows, ROWS)
    d_carried, d_fixed = added(d_carried0, d_carried1), added(d_fixed, d_fixed1)
    return d_z, tl.zeros_like(d_hidden), d_cell * forget, d_carried, d_fixed, d_dt + d_dt1


DEVICE: dict[str, tuple[triton.JITFunction, triton.JITFunction, triton.JITFunction]] = {
    "lstm": (lstm_forward, lstm_slopes, lstm_backward),
    "gru": (gru_forward, gru_slopes, gru_backward),
    "janet": (janet_forward, janet_slopes, janet_backward),
}
"""Device functions by the name of the cell: forward, slopes, backward."""
