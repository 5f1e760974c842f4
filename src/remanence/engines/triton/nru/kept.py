"""The kernels of `kernels` for small layers: every program keeps all matrices in shared memory.

With up to about 128 units the matrices fit into the shared memory of one SM, where Triton puts values that matmuls use
at every step, so that no step waits for the L2 cache. The hidden state, and in the backward pass its gradient, stay in
registers; the memory and the writes go through global memory, because `factored` arranges them differently. Tensors and
names are those of `kernels`; ALL_UNITS, ALL_MEMORY and ALL_WRITES are the next powers of two of H, M and W.
"""

# ruff: noqa: N803, N806
# mypy: ignore-errors

import triton
import triton.language as tl

from ..kernels import factor
from . import factored
from .kernels import tile_of


@triton.jit
def columns_of(row, row_ok, size, ALL: tl.constexpr):
    """All columns of a tensor (B, size), with the offsets and the mask of a tile of rows."""
    column = tl.arange(0, ALL)
    return column, row[:, None] * size + column[None, :], row_ok[:, None] & (column < size)[None, :]


@triton.jit
def part_of(matrix, output, outputs, first, inner, inners, width, TRANSPOSED: tl.constexpr):
    """Columns `first + inner` of a matrix (outputs, width): (output, inner), or transposed."""
    if TRANSPOSED:
        down, across = output[None, :], inner[:, None]
    else:
        down, across = output[:, None], inner[None, :]
    return tl.load(matrix + down * width + first + across, (down < outputs) & (across < inners), 0.0)


@triton.jit
def parts_of(matrix, replica, output, outputs, unit, H, entry, M: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Columns of the hidden state and of memory of a matrix (N, outputs, H + M)."""
    matrix += replica * outputs * (H + M)
    of_hidden = part_of(matrix, output, outputs, 0, unit, H, H + M, TRANSPOSED)
    return of_hidden, part_of(matrix, output, outputs, H, entry, M, H + M, TRANSPOSED)


@triton.jit
def bias_of(bias, replica, column, size, ROWS: tl.constexpr, ALL: tl.constexpr):
    """A row of a bias (N, size) for every row of a tile; zeros if there is none."""
    found = tl.zeros((ROWS, ALL), tl.float32)
    if bias is not None:
        found += tl.load(bias + replica * size + column, column < size, 0.0).to(tl.float32)[None, :]
    return found


@triton.jit(do_not_specialize=["T", "B"])
def forward_kernel(
    projected,
    from_state,
    to_writes,
    bias,
    write_bias,
    lengths,
    hidden,
    memory,
    writes,
    norms,
    T,
    B,
    H,
    M: tl.constexpr,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    PART: tl.constexpr,
    ALL_PART: tl.constexpr,
    ALL_UNITS: tl.constexpr,
    ALL_MEMORY: tl.constexpr,
    ALL_WRITES: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """Compute all h_t and m_t, and the writes."""
    W: tl.constexpr = HEADS + 4 * SIDE
    replica, row, row_ok = tile_of(B, ROWS)
    unit, of_unit, unit_ok = columns_of(row, row_ok, H, ALL_UNITS)
    entry, of_entry, entry_ok = columns_of(row, row_ok, M, ALL_MEMORY)
    write, of_write, write_ok = columns_of(row, row_ok, W, ALL_WRITES)
    hidden += replica * (T + 1) * B * H
    memory += replica * (T + 1) * B * M
    projected += replica * T * B * H
    writes += replica * T * B * W
    hidden_to_hidden, memory_to_hidden = parts_of(from_state, replica, unit, H, unit, H, entry, M, True)
    hidden_to_writes, memory_to_writes = parts_of(to_writes, replica, write, W, unit, H, entry, M, True)
    first_sum = bias_of(bias, replica, unit, H, ROWS, ALL_UNITS)
    first_write = bias_of(write_bias, replica, write, W, ROWS, ALL_WRITES)
    real = row_ok
    if lengths is not None:
        length = tl.load(lengths + replica * B + row, row_ok, 0)
    h = tl.load(hidden + of_unit, unit_ok, 0.0)
    for step in range(T):
        m = factor(tl.load(memory + of_entry, entry_ok, 0.0), from_state, PRECISION)
        total = first_sum + tl.load(projected + of_unit, unit_ok, 0.0).to(tl.float32)
        total = tl.dot(m, memory_to_hidden, total, input_precision=PRECISION)
        total = tl.dot(factor(h, from_state, PRECISION), hidden_to_hidden, total, input_precision=PRECISION)
        found = tl.where(total < 0.0, 0.0, total).to(h.dtype)
        if lengths is not None:
            real = (T - 1 - step if REVERSE else step) < length
            found = tl.where(real[:, None], found, h)
        h = found
        hidden += B * H
        tl.store(hidden + of_unit, h, unit_ok)
        wrote = tl.dot(m, memory_to_writes, first_write, input_precision=PRECISION)
        wrote = tl.dot(factor(h, from_state, PRECISION), hidden_to_writes, wrote, input_precision=PRECISION)
        tl.store(writes + of_write, wrote, write_ok)
        tl.debug_barrier()
        before = memory
        memory += B * M
        factored.write(writes, before, memory, row, row_ok, real, M, HEADS, SIDE, PART, ALL_HEADS, ALL_SIDE, ALL_PART)
        tl.debug_barrier()
        projected += B * H
        writes += B * W


@triton.jit(do_not_specialize=["T", "B"])
def backward_kernel(
    from_state,
    to_writes,
    lengths,
    hidden,
    writes,
    norms,
    d_outputs,
    d_hidden,
    d_memory,
    d_pre,
    d_writes,
    reach,
    T,
    B,
    H,
    M: tl.constexpr,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    PART: tl.constexpr,
    ALL_PART: tl.constexpr,
    ALL_UNITS: tl.constexpr,
    ALL_MEMORY: tl.constexpr,
    ALL_WRITES: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """Propagate gradients of all h_t and the final state back to the initial state, pre-activations and writes."""
    W: tl.constexpr = HEADS + 4 * SIDE
    replica, row, row_ok = tile_of(B, ROWS)
    unit, of_unit, unit_ok = columns_of(row, row_ok, H, ALL_UNITS)
    entry, of_entry, entry_ok = columns_of(row, row_ok, M, ALL_MEMORY)
    write, of_write, write_ok = columns_of(row, row_ok, W, ALL_WRITES)
    hidden += (replica * (T + 1) + T) * B * H
    d_outputs += (replica * (T + 1) + T) * B * H
    d_hidden += replica * B * H
    d_memory += replica * B * M
    last = replica * T + T - 1
    writes += last * B * W
    d_writes += last * B * W
    d_pre += last * B * H
    hidden_to_hidden, hidden_to_memory = parts_of(from_state, replica, unit, H, unit, H, entry, M, False)
    writes_to_hidden, writes_to_memory = parts_of(to_writes, replica, write, W, unit, H, entry, M, False)
    real = row_ok
    if lengths is not None:
        length = tl.load(lengths + replica * B + row, row_ok, 0)
    dh = tl.load(d_hidden + of_unit, unit_ok, 0.0)
    for back in range(T):
        if lengths is not None:
            real = (back if REVERSE else T - 1 - back) < length
        factored.back(
            writes, d_memory, M, d_writes, row, row_ok, real, HEADS, SIDE, PART, ALL_HEADS, ALL_SIDE, ALL_PART
        )
        tl.debug_barrier()
        dh += tl.load(d_outputs + of_unit, unit_ok, 0.0).to(tl.float32)
        dm = tl.load(d_memory + of_entry, entry_ok, 0.0)
        dw = factor(tl.load(d_writes + of_write, write_ok, 0.0), from_state, PRECISION)
        total = tl.dot(dw, writes_to_hidden, dh, input_precision=PRECISION)
        dm = tl.dot(dw, writes_to_memory, dm, input_precision=PRECISION)
        open_ = real[:, None] & (tl.load(hidden + of_unit, unit_ok, 0.0) > 0.0)
        pre = tl.where(open_, total, 0.0).to(d_pre.dtype.element_ty)
        tl.store(d_pre + of_unit, pre, unit_ok)
        pre = factor(pre, from_state, PRECISION)
        passed = tl.where(real[:, None], 0.0, dh)  # rows that have ended pass this on unchanged
        dh = tl.dot(pre, hidden_to_hidden, passed, input_precision=PRECISION)
        dm = tl.dot(pre, hidden_to_memory, dm, input_precision=PRECISION)
        tl.debug_barrier()  # all have read the old one
        tl.store(d_memory + of_entry, dm, entry_ok)
        tl.debug_barrier()
        hidden -= B * H
        d_outputs -= B * H
        writes -= B * W
        d_writes -= B * W
        d_pre -= B * H
    tl.store(d_hidden + of_unit, dh, unit_ok)
