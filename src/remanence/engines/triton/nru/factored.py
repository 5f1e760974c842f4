"""Memory writes if every head covers whole rows of the outer product: then the write of a head has two factors.

Entry i = a s + b of head j is u_ja v_b, with P = M / s values of u per head and all s values of v. Its norm is the
product of theirs, |V_j| = |u_j| |v|, and the write is one outer product instead of one for each head:

    m_t = m_{t-1} + A v,   A = sum over heads of w_j u_j,   w_j = c_j / |V_j|

for the heads that add, and likewise for those that erase. With D for the gradient of the memory, p = D v and
S_j = p . u_j, the gradient of c_j is S_j / |V_j|, that of |V_j| is -w_j S_j / |V_j|, and so those of u and v are

    w_j p_a - w_j S_j / |u_j| sign(u_ja) (|u_ja| / |u_j|)^4
    sum over a of A_a D_ab - sum over heads of w_j S_j / |v| sign(v_b) (|v_b| / |v|)^4

PART is P, ALL_PART the next power of two; ALL_HEADS is the next power of two of k, the number of heads of one kind.
"""

# ruff: noqa: N803
# mypy: ignore-errors

import triton
import triton.language as tl

from .norms import SMALLEST_NORM, TINY


@triton.jit
def fifth_norm(value, axis: tl.constexpr):
    """The L5 norm. Values are divided by the largest first, because fifth powers of small float32 values underflow."""
    largest = tl.maximum(tl.max(tl.abs(value), axis), TINY)
    share = tl.abs(value) / tl.expand_dims(largest, axis)
    powers = tl.sum(share * share * share * share * share, axis)
    norm = largest * tl.exp2(0.2 * tl.log2(tl.where(powers == 0.0, 1.0, powers)))  # avoids log(0)
    return tl.where(powers == 0.0, 0.0, norm)


@triton.jit
def slope_of_norm(value, norm):
    """Derivatives of an L5 norm with respect to its values; zero if the norm is zero."""
    share = value / tl.where(norm == 0.0, 1.0, norm)
    fourth = share * share * share * share
    return tl.where(share < 0.0, -fourth, fourth)


@triton.jit
def factors(
    writes,
    row,
    row_ok,
    erases: tl.constexpr,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    PART: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    ALL_PART: tl.constexpr,
):
    """u (rows, heads, P), v (rows, s) and c (rows, heads) of the heads that add, or of those that erase."""
    half: tl.constexpr = HEADS // 2
    at = writes + row * (HEADS + 4 * SIDE)
    own = at + HEADS + erases * 2 * SIDE
    head, part, side = tl.arange(0, ALL_HEADS), tl.arange(0, ALL_PART), tl.arange(0, ALL_SIDE)
    left_ok = (head < half)[:, None] & (part < PART)[None, :]
    left = head[:, None] * PART + part[None, :]
    u = tl.load(own[:, None, None] + left[None, :, :], row_ok[:, None, None] & left_ok[None, :, :], 0.0)
    v = tl.load(own[:, None] + SIDE + side[None, :], row_ok[:, None] & (side < SIDE)[None, :], 0.0)
    c = tl.load(at[:, None] + erases * half + head[None, :], row_ok[:, None] & (head < half)[None, :], 0.0)
    return u, v, c * ((-1.0 if erases else 1.0) / half)


@triton.jit
def entries(
    row,
    row_ok,
    width,
    SIDE: tl.constexpr,
    PART: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    ALL_PART: tl.constexpr,
):
    """Offsets of the entries of memory, (rows, P, s), in rows of this width, and their mask."""
    part, side = tl.arange(0, ALL_PART), tl.arange(0, ALL_SIDE)
    ok = row_ok[:, None, None] & (part < PART)[None, :, None] & (side < SIDE)[None, None, :]
    return row[:, None, None] * width + part[None, :, None] * SIDE + side[None, None, :], ok


@triton.jit
def write(
    writes,
    before,
    memory,
    row,
    row_ok,
    real,
    M: tl.constexpr,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    PART: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    ALL_PART: tl.constexpr,
):
    """Write the memory after a step; unchanged in rows that are not `real`."""
    here, ok = entries(row, row_ok, M, SIDE, PART, ALL_SIDE, ALL_PART)
    old = tl.load(before + here, ok, 0.0)
    found = old
    for erases in tl.static_range(2):
        u, v, c = factors(writes, row, row_ok, erases, HEADS, SIDE, PART, ALL_HEADS, ALL_SIDE, ALL_PART)
        norm = fifth_norm(u, 2) * fifth_norm(v, 1)[:, None]
        weight = c / tl.where(norm < SMALLEST_NORM, SMALLEST_NORM, norm)
        found += tl.sum(weight[:, :, None] * u, 1)[:, :, None] * v[:, None, :]
    tl.store(memory + here, tl.where(real[:, None, None], found, old), ok)


@triton.jit
def back(
    writes,
    d_memory,
    width,
    d_writes,
    row,
    row_ok,
    real,
    HEADS: tl.constexpr,
    SIDE: tl.constexpr,
    PART: tl.constexpr,
    ALL_HEADS: tl.constexpr,
    ALL_SIDE: tl.constexpr,
    ALL_PART: tl.constexpr,
):
    """Gradients of the writes, zero in rows that are not `real`; rows of `d_memory` have this width."""
    half: tl.constexpr = HEADS // 2
    head, part, side = tl.arange(0, ALL_HEADS), tl.arange(0, ALL_PART), tl.arange(0, ALL_SIDE)
    here, ok = entries(row, row_ok, width, SIDE, PART, ALL_SIDE, ALL_PART)
    slope = tl.where(real[:, None, None], tl.load(d_memory + here, ok, 0.0), 0.0)
    left_ok = row_ok[:, None, None] & ((head < half)[:, None] & (part < PART)[None, :])[None, :, :]
    left = (head[:, None] * PART + part[None, :])[None, :, :]
    at = d_writes + row * (HEADS + 4 * SIDE)
    kind = d_writes.dtype.element_ty
    for erases in tl.static_range(2):
        u, v, c = factors(writes, row, row_ok, erases, HEADS, SIDE, PART, ALL_HEADS, ALL_SIDE, ALL_PART)
        norm_u, norm_v = fifth_norm(u, 2), fifth_norm(v, 1)
        norm = norm_u * norm_v[:, None]
        small = norm < SMALLEST_NORM  # clamped: no gradient through the norm
        norm = tl.where(small, SMALLEST_NORM, norm)
        weight = c / norm
        through = tl.sum(slope * v[:, None, :], 2)
        along = tl.sum(through[:, None, :] * u, 2)
        by_norm = tl.where(small, 0.0, -weight * along / norm)
        by_c = along / norm * ((-1.0 if erases else 1.0) / half)
        by_u = weight[:, :, None] * through[:, None, :]
        by_u += (by_norm * norm_v[:, None])[:, :, None] * slope_of_norm(u, norm_u[:, :, None])
        by_v = tl.sum(tl.sum(weight[:, :, None] * u, 1)[:, :, None] * slope, 1)
        by_v += tl.sum(by_norm * norm_u, 1)[:, None] * slope_of_norm(v, norm_v[:, None])
        own = at + HEADS + erases * 2 * SIDE
        head_ok = row_ok[:, None] & (head < half)[None, :]
        tl.store(at[:, None] + erases * half + head[None, :], by_c.to(kind), head_ok)
        tl.store(own[:, None, None] + left, by_u.to(kind), left_ok)
        tl.store(own[:, None] + SIDE + side[None, :], by_v.to(kind), row_ok[:, None] & (side < SIDE)[None, :])
