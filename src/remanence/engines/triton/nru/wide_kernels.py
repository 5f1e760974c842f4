"""What `wide` does between the matmuls of a step: the ReLU, the memory write, and the gradients of both.

Tensors and names are those of `kernels`, and `step` is the step of a launch. `state` and `slopes`, (N, B, P), are
[h, m] and its gradient. The left factors of matmuls are copies: rows are padded to P, U or V entries, for H + M, H and
W, and for TF32 values are rounded to nearest. The padding stays zero.
"""

# ruff: noqa: N803, N806
# mypy: ignore-errors

import triton
import triton.language as tl

from ..kernels import factor
from . import factored, general
from .kernels import tile_of

AT_ONCE = tl.constexpr(1024)
"""Number of columns that `copied` copies at a time."""


@triton.jit
def is_real(step, lengths, replica, row, row_ok, T, B, REVERSE: tl.constexpr):
    """Whether sequences have begun and not ended."""
    real = row_ok
    if lengths is not None:
        real = (T - 1 - step if REVERSE else step) < tl.load(lengths + replica * B + row, row_ok, 0)
    return real


@triton.jit
def columns_from(first, row, row_ok, size, COLUMNS: tl.constexpr):
    """Some columns of a tensor (B, size), with the offsets and the mask of a tile of rows."""
    column = (first + tl.arange(0, COLUMNS))[None, :]
    return column, row[:, None] * size + column, row_ok[:, None] & (column < size)


@triton.jit
def copied(source, target, row, row_ok, size, width, PRECISION: tl.constexpr):
    """Copy rows of a tensor (B, size) to rows of one of another width, as a factor of a matmul."""
    for first in range(0, size, AT_ONCE):
        column, here, ok = columns_from(first, row, row_ok, size, AT_ONCE)
        value = factor(tl.load(source + here, ok, 0.0), target, PRECISION)
        tl.store(target + row[:, None] * width + column, value, ok)


@triton.jit(do_not_specialize=["step", "T", "B"])
def rectify_kernel(
    pre,  # (N, T, B, U): pre-activations
    hidden,
    state,
    lengths,
    step,
    T,
    B,
    H,
    U: tl.constexpr,
    P: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """Compute h_t."""
    replica, row, row_ok = tile_of(B, ROWS)
    real = is_real(step, lengths, replica, row, row_ok, T, B, REVERSE)
    pre += (replica * T + step) * B * U
    before = hidden + (replica * (T + 1) + step) * B * H
    after = before + B * H
    state += replica * B * P
    for first in range(0, H, COLUMNS):
        unit, here, ok = columns_from(first, row, row_ok, H, COLUMNS)
        total = tl.load(pre + row[:, None] * U + unit, ok, 0.0)
        found = tl.where(total < 0.0, 0.0, total)
        if lengths is not None:
            found = tl.where(real[:, None], found, tl.load(before + here, ok, 0.0))
        tl.store(after + here, found, ok)
        tl.store(state + row[:, None] * P + unit, factor(found, state, PRECISION), ok)


@triton.jit(do_not_specialize=["step", "T", "B"])
def write_kernel(
    memory,
    writes,
    norms,
    state,
    lengths,
    step,
    T,
    B,
    H,
    P: tl.constexpr,
    V: tl.constexpr,
    M: tl.constexpr,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    PART: tl.constexpr,
    ALL_PART: tl.constexpr,
    ENTRIES: tl.constexpr,
    LEFT: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """Compute m_t and the norms of the outer products."""
    replica, row, row_ok = tile_of(B, ROWS)
    real = is_real(step, lengths, replica, row, row_ok, T, B, REVERSE)
    before = memory + (replica * (T + 1) + step) * B * M
    after = before + B * M
    writes += (replica * T + step) * B * (HEADS + 4 * SIDE)
    norms += (replica * T + step) * B * HEADS
    if PART:
        factored.write(writes, before, after, row, row_ok, real, M, HEADS, SIDE, PART, ALL_HEADS, ALL_SIDE, ALL_PART)
    else:
        general.write(writes, norms, before, after, row, row_ok, real, M, HEADS, SIDE, ALL_HEADS, ENTRIES, ROWS)
    tl.debug_barrier()
    copied(after, state + replica * B * P + H, row, row_ok, M, P, PRECISION)


@triton.jit(do_not_specialize=["step", "T", "B"])
def write_back_kernel(
    writes,
    norms,
    slopes,
    d_writes,
    d_writes_copy,  # (N, B, V)
    reach,
    lengths,
    step,
    T,
    B,
    H,
    P: tl.constexpr,
    V: tl.constexpr,
    M: tl.constexpr,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    PART: tl.constexpr,
    ALL_PART: tl.constexpr,
    ENTRIES: tl.constexpr,
    LEFT: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """Compute the gradients of the writes from that of m_t, which is also that of m_{t-1} if nothing is written."""
    W: tl.constexpr = HEADS + 4 * SIDE
    replica, row, row_ok = tile_of(B, ROWS)
    real = is_real(step, lengths, replica, row, row_ok, T, B, REVERSE)
    d_memory = slopes + replica * B * P + H
    writes += (replica * T + step) * B * W
    d_writes += (replica * T + step) * B * W
    norms += (replica * T + step) * B * HEADS
    reach += replica * B * HEADS
    if PART:
        factored.back(
            writes, d_memory, P, d_writes, row, row_ok, real, HEADS, SIDE, PART, ALL_HEADS, ALL_SIDE, ALL_PART
        )
    else:
        general.back(
            writes,
            norms,
            reach,
            d_memory,
            P,
            d_writes,
            row,
            row_ok,
            real,
            M,
            HEADS,
            SIDE,
            ALL_HEADS,
            ALL_SIDE,
            ENTRIES,
            LEFT,
            ROWS,
        )
    tl.debug_barrier()
    copied(d_writes, d_writes_copy + replica * B * V, row, row_ok, W, V, PRECISION)


@triton.jit(do_not_specialize=["step", "T", "B"])
def rectify_back_kernel(
    hidden,
    d_outputs,
    slopes,
    d_pre,
    d_pre_copy,  # (N, B, U)
    lengths,
    step,
    T,
    B,
    H,
    U: tl.constexpr,
    P: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """Compute the gradients of the pre-activations from that of h_t, which remains in rows without this step."""
    replica, row, row_ok = tile_of(B, ROWS)
    real = is_real(step, lengths, replica, row, row_ok, T, B, REVERSE)[:, None]
    after = (replica * (T + 1) + step + 1) * B * H
    hidden += after
    d_outputs += after
    slopes += replica * B * P
    d_pre += (replica * T + step) * B * H
    d_pre_copy += replica * B * U
    for first in range(0, H, COLUMNS):
        unit, here, ok = columns_from(first, row, row_ok, H, COLUMNS)
        slope = slopes + row[:, None] * P + unit
        total = tl.load(slope, ok, 0.0) + tl.load(d_outputs + here, ok, 0.0)
        found = tl.where(real & (tl.load(hidden + here, ok, 0.0) > 0.0), total, 0.0)
        tl.store(d_pre + here, found, ok)
        tl.store(d_pre_copy + row[:, None] * U + unit, factor(found, d_pre_copy, PRECISION), ok)
        tl.store(slope, tl.where(real, 0.0, total), ok)
