"""The non-saturating recurrent unit: a whole sequence in one launch, forward and backward.

N replicas, T steps, B rows (sequences), H units, M entries of memory, k heads for adding and as many for erasing, s
with s^2 = k M, W = 2 k + 4 s writes. Tensors are (N, T, B, ...), contiguous; those of states have T + 1 steps, of which
the first is the state before all others. Steps are in the order in which they are taken, also from the end.

A program has one tile of rows of one replica and waits for nobody: it reads all matrices at every step, out of the L2
cache. What its threads exchange (the state, the writes, derivatives by them) goes through global memory, of which most
is kept for the backward pass anyway.

Heads are numbered 0 to k - 1 for adding, and k to 2 k - 1 for erasing. Entry i of head j is the product of two writes,
those at (j M + i) // s and (j M + i) % s of their vectors of length s; with V for this row of M entries and |V| for its
L5 norm

    m_t = m_{t-1} + sum over heads of c_j V_j / |V_j|,      c = alpha / k of those that add, -beta / k of the others

and with R_j = sum over i of dm_i V_ji / |V_j| the derivatives are R / k by alpha, -R / k by beta, and by V_ji

    c_j (dm_i - R_j sign(V_ji) (V_ji / |V_j|)^4) / |V_j|

Names in capitals are known at compile time. COLUMNS and DEPTH are the tile of a matrix that is multiplied at a time;
HEADS is 2 k and ALL_HEADS the power of two from there; ENTRIES are the entries of memory that are worked on at a time;
SIDE is s, ALL_SIDE the power of two from there, of which LEFT are worked on at a time.
"""

# ruff: noqa: N803, N806
# mypy: ignore-errors

import triton
import triton.language as tl

from ..kernels import factor

SMALLEST_NORM = tl.constexpr(1e-12)
TINY = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def product(
    total,
    left,  # (B, size)
    row,
    row_ok,
    size,
    right,  # entry (i, column) at i * down + column * across
    column,
    column_ok,
    down,
    across,
    like,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """total + left @ right, where a tile of rows is multiplied with some columns."""
    for first in range(0, size, DEPTH):
        inner = first + tl.arange(0, DEPTH)
        inner_ok = inner < size
        a = tl.load(left + row[:, None] * size + inner[None, :], row_ok[:, None] & inner_ok[None, :], 0.0)
        b = tl.load(
            right + inner[:, None] * down + column[None, :] * across, inner_ok[:, None] & column_ok[None, :], 0.0
        )
        total = tl.dot(factor(a, like, PRECISION), b, total, input_precision=PRECISION)
    return total


@triton.jit
def entries(writes, row, row_ok, head, entry, M: tl.constexpr, HEADS: tl.constexpr, SIDE: tl.constexpr):
    """V of some entries of all heads, (rows, heads, entries), zero where there are none."""
    half: tl.constexpr = HEADS // 2
    erases = head // half
    place = (head - erases * half)[:, None] * M + entry[None, :]
    first = HEADS + erases[:, None] * (2 * SIDE)
    ok = row_ok[:, None, None] & (head < HEADS)[None, :, None] & (entry < M)[None, None, :]
    at = writes + (row * (HEADS + 4 * SIDE))[:, None, None]
    u = tl.load(at + (first + place // SIDE)[None, :, :], ok, 0.0)
    v = tl.load(at + (first + SIDE + place % SIDE)[None, :, :], ok, 0.0)
    return u * v


@triton.jit
def weights_of_heads(writes, row, row_ok, head, HEADS: tl.constexpr, SIDE: tl.constexpr):
    """c of all heads, (rows, heads)."""
    ok = row_ok[:, None] & (head < HEADS)[None, :]
    found = tl.load(writes + row[:, None] * (HEADS + 4 * SIDE) + head[None, :], ok, 0.0)
    return tl.where(head < HEADS // 2, 2.0 / HEADS, -2.0 / HEADS)[None, :] * found


@triton.jit(do_not_specialize=["T", "B"])
def forward_kernel(
    projected,  # (N, T, B, H) dtype of the products: what the inputs contribute
    from_hidden,  # (N, H, H)
    from_memory,  # (N, H, M)
    to_writes,  # (N, W, H + M)
    bias,  # (N, H) or None
    write_bias,  # (N, W) or None
    lengths,  # (N, B) or None
    hidden,  # (N, T + 1, B, H) dtype of the products
    memory,  # (N, T + 1, B, M) float32
    writes,  # (N, T, B, W) float32
    norms,  # (N, T, B, 2 k) float32
    T,
    B,
    H,
    M: tl.constexpr,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    ENTRIES: tl.constexpr,
    LEFT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """All h_t and m_t, the writes and the norms of their outer products."""
    W: tl.constexpr = HEADS + 4 * SIDE
    tiles = tl.cdiv(B, ROWS)
    replica = (tl.program_id(0) // tiles).to(tl.int64)
    row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
    row_ok = row < B
    head = tl.arange(0, ALL_HEADS)
    from_hidden += replica * H * H
    from_memory += replica * H * M
    to_writes += replica * W * (H + M)
    hidden += replica * (T + 1) * B * H
    memory += replica * (T + 1) * B * M
    projected += replica * T * B * H
    writes += replica * T * B * W
    norms += replica * T * B * HEADS
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
                total, h_before, row, row_ok, H, from_hidden, unit, unit_ok, 1, H, from_hidden, DEPTH, PRECISION
            )
            total = product(
                total, m_before, row, row_ok, M, from_memory, unit, unit_ok, 1, M, from_hidden, DEPTH, PRECISION
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
                total, hidden, row, row_ok, H, to_writes, write, write_ok, 1, H + M, from_hidden, DEPTH, PRECISION
            )
            total = product(
                total, m_before, row, row_ok, M, to_writes + H, write, write_ok, 1, H + M, from_hidden, DEPTH, PRECISION
            )
            tl.store(writes + row[:, None] * W + write[None, :], total, row_ok[:, None] & write_ok[None, :])
        tl.debug_barrier()
        largest = tl.full((ROWS, ALL_HEADS), TINY, tl.float32)
        for first in range(0, M, ENTRIES):
            value = entries(writes, row, row_ok, head, first + tl.arange(0, ENTRIES), M, HEADS, SIDE)
            largest = tl.maximum(largest, tl.max(tl.abs(value), 2))
        powers = tl.zeros((ROWS, ALL_HEADS), tl.float32)
        for first in range(0, M, ENTRIES):
            value = entries(writes, row, row_ok, head, first + tl.arange(0, ENTRIES), M, HEADS, SIDE)
            share = tl.abs(value) / largest[:, :, None]
            powers += tl.sum(share * share * share * share * share, 2)
        # Of none, as of heads that do not exist, there is no logarithm.
        norm = largest * tl.exp2(0.2 * tl.log2(tl.where(powers == 0.0, 1.0, powers)))
        norm = tl.where(powers == 0.0, 0.0, norm)
        norm = tl.where(norm < SMALLEST_NORM, SMALLEST_NORM, norm)
        head_ok = row_ok[:, None] & (head < HEADS)[None, :]
        tl.store(norms + row[:, None] * HEADS + head[None, :], norm, head_ok)
        scale = weights_of_heads(writes, row, row_ok, head, HEADS, SIDE) / norm
        for first in range(0, M, ENTRIES):
            entry = first + tl.arange(0, ENTRIES)
            ok = row_ok[:, None] & (entry < M)[None, :]
            here = row[:, None] * M + entry[None, :]
            old = tl.load(m_before + here, ok, 0.0)
            found = old + tl.sum(scale[:, :, None] * entries(writes, row, row_ok, head, entry, M, HEADS, SIDE), 1)
            if lengths is not None:
                found = tl.where(real[:, None], found, old)
            tl.store(memory + here, found, ok)
        tl.debug_barrier()
        projected += B * H
        writes += B * W
        norms += B * HEADS


@triton.jit(do_not_specialize=["T", "B"])
def backward_kernel(
    from_hidden,  # (N, H, H)
    from_memory,  # (N, H, M)
    to_writes,  # (N, W, H + M)
    lengths,  # (N, B) or None
    hidden,  # (N, T + 1, B, H), as the forward pass left it
    writes,  # (N, T, B, W)
    norms,  # (N, T, B, 2 k)
    d_outputs,  # (N, T + 1, B, H): by all h_t
    d_hidden,  # (N, B, H) float32: by the last hidden state beyond these; becomes that by the first
    d_memory,  # (N, B, M) float32: by the last memory; becomes that by the first
    d_pre,  # (N, T, B, H) dtype of the products: by what relu is taken of
    d_writes,  # (N, T, B, W) dtype of the products
    reach,  # (N, B, 2 k) float32: R of the present step
    T,
    B,
    H,
    M: tl.constexpr,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    ENTRIES: tl.constexpr,
    LEFT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """From the derivatives by all h_t and the last state back to those by the first, and by all that was added up."""
    W: tl.constexpr = HEADS + 4 * SIDE
    tiles = tl.cdiv(B, ROWS)
    replica = (tl.program_id(0) // tiles).to(tl.int64)
    row = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
    row_ok = row < B
    head = tl.arange(0, ALL_HEADS)
    head_ok = row_ok[:, None] & (head < HEADS)[None, :]
    side = tl.arange(0, ALL_SIDE)
    side_ok = side < SIDE
    from_hidden += replica * H * H
    from_memory += replica * H * M
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
        norm = tl.load(norms + row[:, None] * HEADS + head[None, :], head_ok, 1.0)
        reached = tl.zeros((ROWS, ALL_HEADS), tl.float32)
        for first in range(0, M, ENTRIES):
            entry = first + tl.arange(0, ENTRIES)
            ok = row_ok[:, None] & (entry < M)[None, :]
            slope = tl.load(d_memory + row[:, None] * M + entry[None, :], ok, 0.0)
            reached += tl.sum(slope[:, None, :] * entries(writes, row, row_ok, head, entry, M, HEADS, SIDE), 2)
        reached = reached / norm
        tl.store(reach + row[:, None] * HEADS + head[None, :], reached, head_ok)
        sign = tl.where(head < HEADS // 2, 2.0 / HEADS, -2.0 / HEADS)[None, :]
        by_head = tl.where(real[:, None], sign * reached, 0.0).to(d_writes.dtype.element_ty)
        tl.store(d_writes + row[:, None] * W + head[None, :], by_head, head_ok)
        tl.debug_barrier()
        for erases in tl.static_range(2):
            own = HEADS + erases * 2 * SIDE
            v_ok = row_ok[:, None] & side_ok[None, :]
            v = tl.load(writes + row[:, None] * W + own + SIDE + side[None, :], v_ok, 0.0)
            by_v = tl.zeros((ROWS, ALL_SIDE), tl.float32)
            for first in range(0, SIDE, LEFT):
                left = first + tl.arange(0, LEFT)
                left_ok = row_ok[:, None] & (left < SIDE)[None, :]
                u = tl.load(writes + row[:, None] * W + own + left[None, :], left_ok, 0.0)
                place = left[:, None] * SIDE + side[None, :]
                ok = left_ok[:, :, None] & side_ok[None, None, :]
                of = erases * (HEADS // 2) + place // M
                at = row[:, None, None]
                slope = tl.load(d_memory + at * M + (place % M)[None, :, :], ok, 0.0)
                length_of = tl.load(norms + at * HEADS + of[None, :, :], ok, 1.0)
                along = tl.load(reach + at * HEADS + of[None, :, :], ok, 0.0)
                weight = tl.load(writes + at * W + of[None, :, :], ok, 0.0) * (2.0 / HEADS)
                if erases:
                    weight = -weight
                share = u[:, :, None] * v[:, None, :] / length_of
                fourth = share * share * share * share
                fourth = tl.where(share < 0.0, -fourth, fourth)
                along = tl.where(length_of <= SMALLEST_NORM, 0.0, along)  # that small it is no norm any more
                by_entry = weight * (slope - fourth * along) / length_of
                by_u = tl.where(real[:, None], tl.sum(by_entry * v[:, None, :], 2), 0.0)
                tl.store(d_writes + row[:, None] * W + own + left[None, :], by_u.to(d_writes.dtype.element_ty), left_ok)
                by_v += tl.sum(by_entry * u[:, :, None], 1)
            by_v = tl.where(real[:, None], by_v, 0.0).to(d_writes.dtype.element_ty)
            tl.store(d_writes + row[:, None] * W + own + SIDE + side[None, :], by_v, v_ok)
        tl.debug_barrier()
        for first in range(0, H, COLUMNS):
            unit = first + tl.arange(0, COLUMNS)
            unit_ok = unit < H
            ok = row_ok[:, None] & unit_ok[None, :]
            here = row[:, None] * H + unit[None, :]
            total = tl.load(d_hidden + here, ok, 0.0) + tl.load(d_outputs + here, ok, 0.0).to(tl.float32)
            tl.store(d_hidden + here, total, ok)  # what rows that have ended hand on
            total = product(
                total, d_writes, row, row_ok, W, to_writes, unit, unit_ok, H + M, 1, from_hidden, DEPTH, PRECISION
            )
            open_ = real[:, None] & (tl.load(hidden + here, ok, 0.0) > 0.0)
            tl.store(d_pre + here, tl.where(open_, total, 0.0).to(d_pre.dtype.element_ty), ok)
        tl.debug_barrier()
        for first in range(0, M, COLUMNS):
            entry = first + tl.arange(0, COLUMNS)
            entry_ok = entry < M
            ok = row_ok[:, None] & entry_ok[None, :]
            here = row[:, None] * M + entry[None, :]
            total = tl.load(d_memory + here, ok, 0.0)
            total = product(
                total, d_writes, row, row_ok, W, to_writes + H, entry, entry_ok, H + M, 1, from_hidden, DEPTH, PRECISION
            )
            total = product(
                total, d_pre, row, row_ok, H, from_memory, entry, entry_ok, M, 1, from_hidden, DEPTH, PRECISION
            )
            tl.store(d_memory + here, total, ok)
        for first in range(0, H, COLUMNS):
            unit = first + tl.arange(0, COLUMNS)
            unit_ok = unit < H
            ok = row_ok[:, None] & unit_ok[None, :]
            here = row[:, None] * H + unit[None, :]
            total = tl.zeros((ROWS, COLUMNS), tl.float32)
            if lengths is not None:
                total = tl.where(real[:, None], total, tl.load(d_hidden + here, ok, 0.0))
            total = product(
                total, d_pre, row, row_ok, H, from_hidden, unit, unit_ok, H, 1, from_hidden, DEPTH, PRECISION
            )
            tl.store(d_hidden + here, total, ok)
        tl.debug_barrier()
        hidden -= B * H
        d_outputs -= B * H
        writes -= B * W
        d_writes -= B * W
        norms -= B * HEADS
        d_pre -= B * H
