"""The non-saturating recurrent unit: a whole sequence in one launch, forward and backward.

N replicas, T steps, B batch rows (sequences), H units, M entries of memory, k heads for adding and as many for erasing,
s with s^2 = k M, W = 2 k + 4 s writes. Tensors are (N, T, B, ...), contiguous; those of states have T + 1 steps, the
first of which is the initial state. Steps are in processing order, also for reversed sequences.

A program has one tile of rows of one replica and does not synchronise with others: it reads all matrices at every step
from the L2 cache. Its threads exchange data (the state, the writes, their gradients) through global memory; most of it
is saved for the backward pass anyway. Memory writes are in `factored` where possible, otherwise in `general`.

Names in capitals are compile-time constants. COLUMNS and DEPTH are the tile of a matrix that is multiplied at a time;
HEADS is 2 k; SIDE is s, ALL_SIDE the next power of two; PART is M / s, or 0 if heads end within a row of the outer
product. All others are those of `factored` and `general`.
"""

# ruff: noqa: N803, N806
# mypy: ignore-errors

import triton
import triton.language as tl

from ..kernels import factor
from . import factored, general


@triton.jit
def tile_of(B, ROWS: tl.constexpr):
    """Replica of this program, its rows, and which of them exist."""
    tiles = tl.cdiv(B, ROWS)
    row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
    return (tl.program_id(0) // tiles).to(tl.int64), row, row < B


@triton.jit
def product(
    total,
    first,  # (B, size)
    size,
    second,  # (B, more) or None
    more,
    row,
    row_ok,
    right,  # entry (i, column) at i * down + column * across
    column,
    column_ok,
    down,
    across,
    like,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """total + [first, second] @ right, for a tile of rows and some columns."""
    for begin in range(0, size + more, DEPTH):
        inner = begin + tl.arange(0, DEPTH)
        ok = row_ok[:, None] & (inner < size)[None, :]
        a = factor(tl.load(first + row[:, None] * size + inner[None, :], ok, 0.0), like, PRECISION)
        if second is not None:
            further = inner - size
            ok = row_ok[:, None] & ((further >= 0) & (further < more))[None, :]
            a += factor(tl.load(second + row[:, None] * more + further[None, :], ok, 0.0), like, PRECISION)
        b = tl.load(
            right + inner[:, None] * down + column[None, :] * across,
            (inner < size + more)[:, None] & column_ok[None, :],
            0.0,
        )
        total = tl.dot(a, b, total, input_precision=PRECISION)
    return total


@triton.jit
def state_columns(first, row, row_ok, H, M: tl.constexpr, COLUMNS: tl.constexpr):
    """Some columns of [hidden state, memory], with the offsets and masks of both."""
    column = first + tl.arange(0, COLUMNS)
    column_ok = column < H + M
    h_ok = row_ok[:, None] & (column < H)[None, :]
    m_ok = row_ok[:, None] & (column >= H)[None, :] & column_ok[None, :]
    return column, column_ok, row[:, None] * H + column[None, :], h_ok, row[:, None] * M + (column - H)[None, :], m_ok


@triton.jit(do_not_specialize=["T", "B"])
def forward_kernel(
    projected,  # (N, T, B, H) compute dtype: contribution of the inputs
    from_state,  # (N, H, H + M): weights of the hidden state, then of memory
    to_writes,  # (N, W, H + M)
    bias,  # (N, H) or None
    write_bias,  # (N, W) or None
    lengths,  # (N, B) or None
    hidden,  # (N, T + 1, B, H) compute dtype
    memory,  # (N, T + 1, B, M) float32
    writes,  # (N, T, B, W) float32
    norms,  # (N, T, B, 2 k) float32, in the general form
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
    ENTRIES: tl.constexpr,
    LEFT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """Compute all h_t and m_t, the writes and the norms of their outer products."""
    W: tl.constexpr = HEADS + 4 * SIDE
    replica, row, row_ok = tile_of(B, ROWS)
    from_state += replica * H * (H + M)
    to_writes += replica * W * (H + M)
    hidden += replica * (T + 1) * B * H
    memory += replica * (T + 1) * B * M
    projected += replica * T * B * H
    writes += replica * T * B * W
    norms += replica * T * B * HEADS
    real = row_ok
    if lengths is not None:
        length = tl.load(lengths + replica * B + row, row_ok, 0)
    for step in range(T):
        h_before, m_before = hidden, memory
        hidden += B * H
        memory += B * M
        if lengths is not None:
            real = (T - 1 - step if REVERSE else step) < length
        for first in range(0, H, COLUMNS):
            unit = first + tl.arange(0, COLUMNS)
            unit_ok = unit < H
            ok = row_ok[:, None] & unit_ok[None, :]
            here = row[:, None] * H + unit[None, :]
            total = tl.load(projected + here, ok, 0.0).to(tl.float32)
            if bias is not None:
                total += tl.load(bias + replica * H + unit, unit_ok, 0.0).to(tl.float32)[None, :]
            total = product(
                total,
                h_before,
                H,
                m_before,
                M,
                row,
                row_ok,
                from_state,
                unit,
                unit_ok,
                1,
                H + M,
                from_state,
                DEPTH,
                PRECISION,
            )
            found = tl.where(total < 0.0, 0.0, total).to(hidden.dtype.element_ty)
            if lengths is not None:
                found = tl.where(real[:, None], found, tl.load(h_before + here, ok, 0.0))
            tl.store(hidden + here, found, ok)
        tl.debug_barrier()
        for first in range(0, W, COLUMNS):
            write = first + tl.arange(0, COLUMNS)
            write_ok = write < W
            total = tl.zeros((ROWS, COLUMNS), tl.float32)
            if write_bias is not None:
                total += tl.load(write_bias + replica * W + write, write_ok, 0.0).to(tl.float32)[None, :]
            total = product(
                total,
                hidden,
                H,
                m_before,
                M,
                row,
                row_ok,
                to_writes,
                write,
                write_ok,
                1,
                H + M,
                from_state,
                DEPTH,
                PRECISION,
            )
            tl.store(writes + row[:, None] * W + write[None, :], total, row_ok[:, None] & write_ok[None, :])
        tl.debug_barrier()
        if PART:
            factored.write(
                writes, m_before, memory, row, row_ok, real, M, HEADS, SIDE, PART, ALL_HEADS, ALL_SIDE, ALL_PART
            )
        else:
            general.write(writes, norms, m_before, memory, row, row_ok, real, M, HEADS, SIDE, ALL_HEADS, ENTRIES, ROWS)
        tl.debug_barrier()
        projected += B * H
        writes += B * W
        norms += B * HEADS


@triton.jit(do_not_specialize=["T", "B"])
def backward_kernel(
    from_state,  # (N, H, H + M): weights of the hidden state, then of memory
    to_writes,  # (N, W, H + M)
    lengths,  # (N, B) or None
    hidden,  # (N, T + 1, B, H), saved by the forward pass
    writes,  # (N, T, B, W)
    norms,  # (N, T, B, 2 k)
    d_outputs,  # (N, T + 1, B, H): gradients of all h_t
    d_hidden,  # (N, B, H) float32: further gradient of the final hidden state; becomes that of the initial one
    d_memory,  # (N, B, M) float32: gradient of the final memory; becomes that of the initial one
    d_pre,  # (N, T, B, H) compute dtype: gradients of the pre-activations of the ReLU
    d_writes,  # (N, T, B, W) compute dtype
    reach,  # (N, B, 2 k) float32: scratch space of `general`
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
    ENTRIES: tl.constexpr,
    LEFT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """Propagate gradients of all h_t and the final state back to the initial state, pre-activations and writes."""
    W: tl.constexpr = HEADS + 4 * SIDE
    replica, row, row_ok = tile_of(B, ROWS)
    from_state += replica * H * (H + M)
    to_writes += replica * W * (H + M)
    hidden += (replica * (T + 1) + T) * B * H
    d_outputs += (replica * (T + 1) + T) * B * H
    d_hidden += replica * B * H
    d_memory += replica * B * M
    reach += replica * B * HEADS
    last = replica * T + T - 1
    writes += last * B * W
    d_writes += last * B * W
    norms += last * B * HEADS
    d_pre += last * B * H
    real = row_ok
    if lengths is not None:
        length = tl.load(lengths + replica * B + row, row_ok, 0)
    for back in range(T):
        if lengths is not None:
            real = (back if REVERSE else T - 1 - back) < length
        if PART:
            factored.back(
                writes, d_memory, M, d_writes, row, row_ok, real, HEADS, SIDE, PART, ALL_HEADS, ALL_SIDE, ALL_PART
            )
        else:
            general.back(
                writes,
                norms,
                reach,
                d_memory,
                M,
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
        for first in range(0, H + M, COLUMNS):  # columns of the hidden state, then of memory
            column, column_ok, h_here, h_ok, m_here, m_ok = state_columns(first, row, row_ok, H, M, COLUMNS)
            total = tl.load(d_hidden + h_here, h_ok, 0.0) + tl.load(d_outputs + h_here, h_ok, 0.0).to(tl.float32)
            tl.store(d_hidden + h_here, total, h_ok)  # rows that have ended pass this on unchanged
            total += tl.load(d_memory + m_here, m_ok, 0.0)
            total = product(
                total,
                d_writes,
                W,
                None,
                0,
                row,
                row_ok,
                to_writes,
                column,
                column_ok,
                H + M,
                1,
                from_state,
                DEPTH,
                PRECISION,
            )
            open_ = real[:, None] & (tl.load(hidden + h_here, h_ok, 0.0) > 0.0)
            tl.store(d_pre + h_here, tl.where(open_, total, 0.0).to(d_pre.dtype.element_ty), h_ok)
            tl.store(d_memory + m_here, total, m_ok)
        tl.debug_barrier()
        for first in range(0, H + M, COLUMNS):
            column, column_ok, h_here, h_ok, m_here, m_ok = state_columns(first, row, row_ok, H, M, COLUMNS)
            total = tl.load(d_memory + m_here, m_ok, 0.0)
            if lengths is not None:
                total += tl.where(real[:, None], 0.0, tl.load(d_hidden + h_here, h_ok, 0.0))
            total = product(
                total,
                d_pre,
                H,
                None,
                0,
                row,
                row_ok,
                from_state,
                column,
                column_ok,
                H + M,
                1,
                from_state,
                DEPTH,
                PRECISION,
            )
            tl.store(d_hidden + h_here, total, h_ok)
            tl.store(d_memory + m_here, total, m_ok)
        tl.debug_barrier()
        hidden -= B * H
        d_outputs -= B * H
        writes -= B * W
        d_writes -= B * W
        norms -= B * HEADS
        d_pre -= B * H
