"""The kernels of `kernels` for small layers: every program keeps all matrices in registers.

With up to about 128 units the matrices fit into the registers of one SM, so that no step waits for the L2 cache. The
hidden state, and in the backward pass its gradient, stay in registers as well; the memory and the writes go through
global memory, because `factored` arranges them differently. Tensors and names are those of `kernels`; ALL_UNITS,
ALL_MEMORY and ALL_WRITES are the next powers of two of H, M and W.
"""

# ruff: noqa: N803, N806
# mypy: ignore-errors

import triton
import triton.language as tl

from ..kernels import factor
from . import factored


@triton.jit
def to_outputs(matrix, output, outputs, first, inner, inners, width):
    """Columns `first + inner` of a matrix (outputs, width), transposed: (inner, output)."""
    ok = (inner < inners)[:, None] & (output < outputs)[None, :]
    return tl.load(matrix + output[None, :] * width + first + inner[:, None], ok, 0.0)


@triton.jit
def to_inputs(matrix, output, outputs, first, inner, inners, width):
    """Columns `first + inner` of a matrix (outputs, width): (output, inner)."""
    ok = (output < outputs)[:, None] & (inner < inners)[None, :]
    return tl.load(matrix + output[:, None] * width + first + inner[None, :], ok, 0.0)


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
    tiles = tl.cdiv(B, ROWS)
    replica = (tl.program_id(0) // tiles).to(tl.int64)
    row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
    unit, entry, write = tl.arange(0, ALL_UNITS), tl.arange(0, ALL_MEMORY), tl.arange(0, ALL_WRITES)
    row_ok = row < B
    unit_ok = row_ok[:, None] & (unit < H)[None, :]
    entry_ok = row_ok[:, None] & (entry < M)[None, :]
    write_ok = row_ok[:, None] & (write < W)[None, :]
    here, there = row[:, None] * H + unit[None, :], row[:, None] * M + entry[None, :]
    from_state += replica * H * (H + M)
    to_writes += replica * W * (H + M)
    hidden += replica * (T + 1) * B * H
    memory += replica * (T + 1) * B * M
    projected += replica * T * B * H
    writes += replica * T * B * W
    hidden_to_hidden = to_outputs(from_state, unit, H, 0, unit, H, H + M)
    memory_to_hidden = to_outputs(from_state, unit, H, H, entry, M, H + M)
    hidden_to_writes = to_outputs(to_writes, write, W, 0, unit, H, H + M)
    memory_to_writes = to_outputs(to_writes, write, W, H, entry, M, H + M)
    first_sum = tl.zeros((ROWS, ALL_UNITS), tl.float32)
    if bias is not None:
        first_sum += tl.load(bias + replica * H + unit, unit < H, 0.0).to(tl.float32)[None, :]
    first_write = tl.zeros((ROWS, ALL_WRITES), tl.float32)
    if write_bias is not None:
        first_write += tl.load(write_bias + replica * W + write, write < W, 0.0).to(tl.float32)[None, :]
    real = row_ok
    if lengths is not None:
        length = tl.load(lengths + replica * B + row, row_ok, 0)
    h = tl.load(hidden + here, unit_ok, 0.0)
    for step in range(T):
        m = factor(tl.load(memory + there, entry_ok, 0.0), from_state, PRECISION)
        total = first_sum + tl.load(projected + here, unit_ok, 0.0).to(tl.float32)
        total = tl.dot(m, memory_to_hidden, total, input_precision=PRECISION)
        total = tl.dot(factor(h, from_state, PRECISION), hidden_to_hidden, total, input_precision=PRECISION)
        found = tl.where(total < 0.0, 0.0, total).to(h.dtype)
        if lengths is not None:
            real = (T - 1 - step if REVERSE else step) < length
            found = tl.where(real[:, None], found, h)
        h = found
        hidden += B * H
        tl.store(hidden + here, h, unit_ok)
        wrote = tl.dot(m, memory_to_writes, first_write, input_precision=PRECISION)
        wrote = tl.dot(factor(h, from_state, PRECISION), hidden_to_writes, wrote, input_precision=PRECISION)
        tl.store(writes + row[:, None] * W + write[None, :], wrote, write_ok)
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
    tiles = tl.cdiv(B, ROWS)
    replica = (tl.program_id(0) // tiles).to(tl.int64)
    row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
    unit, entry, write = tl.arange(0, ALL_UNITS), tl.arange(0, ALL_MEMORY), tl.arange(0, ALL_WRITES)
    row_ok = row < B
    unit_ok = row_ok[:, None] & (unit < H)[None, :]
    entry_ok = row_ok[:, None] & (entry < M)[None, :]
    write_ok = row_ok[:, None] & (write < W)[None, :]
    here, there = row[:, None] * H + unit[None, :], row[:, None] * M + entry[None, :]
    from_state += replica * H * (H + M)
    to_writes += replica * W * (H + M)
    hidden += (replica * (T + 1) + T) * B * H
    d_outputs += (replica * (T + 1) + T) * B * H
    d_hidden += replica * B * H
    d_memory += replica * B * M
    last = replica * T + T - 1
    writes += last * B * W
    d_writes += last * B * W
    d_pre += last * B * H
    hidden_to_hidden = to_inputs(from_state, unit, H, 0, unit, H, H + M)
    hidden_to_memory = to_inputs(from_state, unit, H, H, entry, M, H + M)
    writes_to_hidden = to_inputs(to_writes, write, W, 0, unit, H, H + M)
    writes_to_memory = to_inputs(to_writes, write, W, H, entry, M, H + M)
    real = row_ok
    if lengths is not None:
        length = tl.load(lengths + replica * B + row, row_ok, 0)
    dh = tl.load(d_hidden + here, unit_ok, 0.0)
    for back in range(T):
        if lengths is not None:
            real = (back if REVERSE else T - 1 - back) < length
        factored.back(
            writes, d_memory, d_writes, row, row_ok, real, M, HEADS, SIDE, PART, ALL_HEADS, ALL_SIDE, ALL_PART
        )
        tl.debug_barrier()
        dh += tl.load(d_outputs + here, unit_ok, 0.0).to(tl.float32)
        dm = tl.load(d_memory + there, entry_ok, 0.0)
        dw = factor(
            tl.load(d_writes + row[:, None] * W + write[None, :], write_ok, 0.0),
            from_state,
            PRECISION,
        )
        total = tl.dot(dw, writes_to_hidden, dh, input_precision=PRECISION)
        dm = tl.dot(dw, writes_to_memory, dm, input_precision=PRECISION)
        open_ = real[:, None] & (tl.load(hidden + here, unit_ok, 0.0) > 0.0)
        pre = tl.where(open_, total, 0.0).to(d_pre.dtype.element_ty)
        tl.store(d_pre + here, pre, unit_ok)
        pre = factor(pre, from_state, PRECISION)
        passed = tl.where(real[:, None], 0.0, dh)  # rows that have ended pass this on unchanged
        dh = tl.dot(pre, hidden_to_hidden, passed, input_precision=PRECISION)
        dm = tl.dot(pre, hidden_to_memory, dm, input_precision=PRECISION)
        tl.debug_barrier()  # all have read the old one
        tl.store(d_memory + there, dm, entry_ok)
        tl.debug_barrier()
        hidden -= B * H
        d_outputs -= B * H
        writes -= B * W
        d_writes -= B * W
        d_pre -= B * H
    tl.store(d_hidden + here, dh, unit_ok)
