"""Memory writes if heads may end anywhere in the outer product.

Heads are numbered 0 to k - 1 for adding, and k to 2 k - 1 for erasing. Entry i of head j is the product of two writes,
those at (j M + i) // s and (j M + i) % s of their vectors of length s; with V for this row of M entries and |V| for its
L5 norm

    m_t = m_{t-1} + sum over heads of c_j V_j / |V_j|,      c = alpha / k for heads that add, -beta / k for the others

and with R_j = sum over i of dm_i V_ji / |V_j| the gradients are R / k of alpha, -R / k of beta, and of V_ji

    c_j (dm_i - R_j sign(V_ji) (V_ji / |V_j|)^4) / |V_j|

ALL_HEADS is the next power of two of 2 k; ENTRIES is the number of entries of memory that are processed at a time, LEFT
the number of values of the first factor.
"""

# ruff: noqa: N803, N806
# mypy: ignore-errors

import triton
import triton.language as tl

from .norms import SMALLEST_NORM, TINY


@triton.jit
def entries(writes, row, row_ok, head, entry, M: tl.constexpr, HEADS: tl.constexpr, SIDE: tl.constexpr):
    """V for some entries of all heads, (rows, heads, entries); zero out of range."""
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


@triton.jit
def write(
    writes,
    norms,
    before,
    memory,
    row,
    row_ok,
    real,
    M: tl.constexpr,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ENTRIES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write the memory after a step, unchanged in rows that are not `real`, and the norms of the writes."""
    head = tl.arange(0, ALL_HEADS)
    largest = tl.full((ROWS, ALL_HEADS), TINY, tl.float32)
    for first in range(0, M, ENTRIES):
        value = entries(writes, row, row_ok, head, first + tl.arange(0, ENTRIES), M, HEADS, SIDE)
        largest = tl.maximum(largest, tl.max(tl.abs(value), 2))
    powers = tl.zeros((ROWS, ALL_HEADS), tl.float32)
    for first in range(0, M, ENTRIES):
        value = entries(writes, row, row_ok, head, first + tl.arange(0, ENTRIES), M, HEADS, SIDE)
        share = tl.abs(value) / largest[:, :, None]
        powers += tl.sum(share * share * share * share * share, 2)
    # Avoids log(0), for zero writes and for heads out of range.
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
        old = tl.load(before + here, ok, 0.0)
        found = old + tl.sum(scale[:, :, None] * entries(writes, row, row_ok, head, entry, M, HEADS, SIDE), 1)
        tl.store(memory + here, tl.where(real[:, None], found, old), ok)


@triton.jit
def back(
    writes,
    norms,
    reach,
    d_memory,
    width,
    d_writes,
    row,
    row_ok,
    real,
    M: tl.constexpr,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    ENTRIES: tl.constexpr,
    LEFT: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Gradients of the writes, zero in rows that are not `real`; also stores R of the heads in `reach`.

    Rows of `d_memory` have this width.
    """
    W: tl.constexpr = HEADS + 4 * SIDE
    head, side = tl.arange(0, ALL_HEADS), tl.arange(0, ALL_SIDE)
    head_ok = row_ok[:, None] & (head < HEADS)[None, :]
    side_ok = side < SIDE
    norm = tl.load(norms + row[:, None] * HEADS + head[None, :], head_ok, 1.0)
    reached = tl.zeros((ROWS, ALL_HEADS), tl.float32)
    for first in range(0, M, ENTRIES):
        entry = first + tl.arange(0, ENTRIES)
        ok = row_ok[:, None] & (entry < M)[None, :]
        slope = tl.load(d_memory + row[:, None] * width + entry[None, :], ok, 0.0)
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
            slope = tl.load(d_memory + at * width + (place % M)[None, :, :], ok, 0.0)
            length_of = tl.load(norms + at * HEADS + of[None, :, :], ok, 1.0)
            along = tl.load(reach + at * HEADS + of[None, :, :], ok, 0.0)
            weight = tl.load(writes + at * W + of[None, :, :], ok, 0.0) * (2.0 / HEADS)
            if erases:
                weight = -weight
            share = u[:, :, None] * v[:, None, :] / length_of
            fourth = share * share * share * share
            fourth = tl.where(share < 0.0, -fourth, fourth)
            along = tl.where(length_of <= SMALLEST_NORM, 0.0, along)  # clamped: no gradient through the norm
            by_entry = weight * (slope - fourth * along) / length_of
            by_u = tl.where(real[:, None], tl.sum(by_entry * v[:, None, :], 2), 0.0)
            tl.store(d_writes + row[:, None] * W + own + left[None, :], by_u.to(d_writes.dtype.element_ty), left_ok)
            by_v += tl.sum(by_entry * u[:, :, None], 1)
        by_v = tl.where(real[:, None], by_v, 0.0).to(d_writes.dtype.element_ty)
        tl.store(d_writes + row[:, None] * W + own + SIDE + side[None, :], by_v, v_ok)
