"""The matmuls before and after the recurrence.

Shapes are those of `contract`. Tensor cores need aligned rows, and unaligned ones cost more than padding does: one
matmul over padded blocks takes a half to a quarter of the time of one matmul per unpadded block.
"""

from __future__ import annotations

from math import gcd

import torch
from torch import Tensor

from ..machine import lacking, processors
from .layout import Blocks, padded

LARGE = 2**20
"""Number of elements from which on inputs are copied to pad them."""
NARROW, FEW = 16, 2**24
"""A matrix of up to `NARROW` columns is not padded for fewer than `FEW` elements: host overhead dominates."""
PARTS = 8
"""Largest number of matmuls that one over many rows is split into (split-K)."""
TILE = (128, 256)
"""Tile of a float32 matmul that one SM computes."""
SUMS = 64
"""Number of partial sums of a long reduction."""


def by_weight(inputs: Tensor, weight: Tensor) -> Tensor:
    """Contribution of inputs `(N, T B, I)` to the pre-activations, with rows padded to whole vectors."""
    more, rows = _more(inputs), lacking(weight.shape[-2], weight.itemsize)
    return times(padded(inputs, (0, more)), padded(weight, (0, more, 0, rows)).mT)


def derivatives_by_inputs(d_pre: Tensor, weight: Tensor, blocks: Blocks) -> Tensor:
    """d_pre @ weight, `(N, T B, I)`. The blocks of the weight are unpadded; d_pre is zero after the last block."""
    width, rows = weight.shape[-1], blocks.units - blocks.real
    as_it_is = width == 1 or (width <= NARROW and d_pre.numel() < FEW)
    columns = 0 if as_it_is else lacking(width, weight.itemsize)
    if rows:
        weight = padded(weight, (0, columns, 0, rows), blocks.number)
    else:
        weight = padded(weight, (0, columns, 0, d_pre.shape[-1] - weight.shape[-2]))
    product = times(d_pre, weight)
    return product[..., :width] if columns else product


def derivatives_by_weight(d_pre: Tensor, inputs: Tensor, blocks: Blocks) -> Tensor:
    """d_pre^T @ inputs without padding units, `(N, G units, I)`."""
    factors = padded(inputs, (0, _more(inputs)))
    return _over_steps(d_pre, factors, blocks, inputs.shape[-1], _parts(d_pre, factors))


def derivatives_by_recurrent_weight(
    d_pre: Tensor, outputs: Tensor, hidden: Tensor | None, blocks: Blocks, reverse: bool
) -> Tensor:
    """The sum over steps of d_pre_t^T @ h_{t-1} without padding units, `(N, G units, units)`.

    Args:
        d_pre: Gradients of the pre-activations, `(N, T B, ...)`.
        outputs: All h_t, `(N, T, B, H)`.
        hidden: Initial hidden state, `(N, B, H)`; None for zero.
        blocks: Blocks of d_pre.
        reverse: Whether the sequence runs backward, so that the initial state precedes the last step.
    """
    rows = outputs.shape[-2]
    h = outputs.flatten(-3, -2)
    whole = (0, lacking(h.shape[-1], h.itemsize))
    count = h.shape[-2] - rows
    later, before = (_part(d_pre, 0, count), _part(h, rows)) if reverse else (_part(d_pre, rows), _part(h, 0, count))
    before = padded(before, whole)
    total = _over_steps(later, before, blocks, blocks.real, _parts(later, before))
    if hidden is not None:
        first = _part(d_pre, count) if reverse else _part(d_pre, 0, rows)
        total += _over_steps(first, padded(hidden, whole), blocks, blocks.real)
    return total


def derivatives_of_replicas(d_pre: Tensor, before: Tensor, blocks: Blocks) -> Tensor:
    """The same from all h_{t-1}, `(N, T B, H)`, as split-K: torch runs a few long matmuls on only a few SMs."""
    return _over_steps(d_pre, before, blocks, blocks.real, gcd(d_pre.shape[-2], PARTS))


def sum_over_rows(d_pre: Tensor) -> Tensor:
    """The sum over all steps and sequences, in float32.

    In two stages: to sum very many rows, torch allocates a buffer as large as its input.
    """
    *lead, rows, width = d_pre.shape
    rest = rows % SUMS
    total = d_pre[..., rows - rest :, :].sum(-2, dtype=torch.float32)
    if rest == rows:
        return total
    first = d_pre[..., : rows - rest, :].reshape(*lead, SUMS, -1, width)
    return total + first.sum(-2, dtype=torch.float32).sum(-2)


def times(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for all replicas."""
    return torch.mm(a, b) if a.dim() == 2 else torch.bmm(a, b)


def _part(value: Tensor, start: int, end: int | None = None) -> Tensor:
    """These rows of `(N, T B, ...)`; without an ellipsis, which takes torch as long as the slice itself."""
    return value[start:end] if value.dim() == 2 else value[:, start:end]


def _more(inputs: Tensor) -> int:
    """Number of padding columns for inputs."""
    return lacking(inputs.shape[-1], inputs.itemsize) if inputs.numel() >= LARGE else 0


def _over_steps(d_pre: Tensor, factors: Tensor, blocks: Blocks, columns: int, parts: int = 1) -> Tensor:
    """d_pre^T @ factors without padding, as the sum of `parts` matmuls."""
    if parts == 1:
        return blocks.cut(times(d_pre.mT, factors), columns)
    *lead, rows, width = d_pre.shape
    d_pre, factors = (value.reshape(-1, rows // parts, value.shape[-1]) for value in (d_pre, factors))
    totals = torch.bmm(d_pre.mT, factors).view(*lead, parts, width, -1)
    return blocks.apart(totals, columns).sum(-4).flatten(-3, -2)


def _parts(d_pre: Tensor, factors: Tensor) -> int:
    """Number of parts to split a float32 matmul into if its tiles would leave some SMs idle.

    If more than half of the SMs would be idle, torch splits it by itself.
    """
    if d_pre.dim() > 2 or d_pre.dtype != torch.float32 or not d_pre.numel():
        return 1
    rows, width = d_pre.shape
    many = processors(d_pre.device)
    tiles = -(-width // TILE[0]) * -(-factors.shape[-1] // TILE[1])
    if not many < 2 * tiles < 2 * many:
        return 1
    possible = (parts for parts in range(1, PARTS + 1) if rows % parts == 0)
    return min(possible, key=lambda parts: -(-tiles * parts // many) / parts)
