"""The linear recurrence y_t = a y_{t-1} + x_t over all steps, without an operation for each of them.

The steps are divided into about sqrt(T) chunks of as many steps. Every chunk is computed from zero, all chunks at once;
then their last values are corrected from chunk to chunk; then all others by one product with powers of a. These are
about 2 sqrt(T) operations, and as in a loop a NaN stays out of all earlier steps.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


def scan(values: Tensor, decay: Tensor, reverse: bool = False) -> Tensor:
    """All y_t, starting from zero.

    Args:
        values: All x_t, `(..., T, B, W)`.
        decay: a, `(W,)`; gradients do not flow to it.
        reverse: Whether to run from the last step to the first.
    """
    return _Scan.apply(values, decay, reverse)  # type: ignore[no-any-return, no-untyped-call]


class _Scan(torch.autograd.Function):
    """Its derivative is the same recurrence in the other direction."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, decay: Tensor, reverse: bool) -> Tensor:
        ctx.save_for_backward(decay)
        ctx.reverse = reverse
        *several, steps, batch, width = values.shape
        length = math.isqrt(max(steps - 1, 0)) + 1
        count = -(-steps // length)
        missing = count * length - steps
        filled = values.new_zeros(*several, count * length, batch, width)
        found = filled.narrow(-3, missing if reverse else 0, steps)
        found.copy_(values)
        _in_chunks(filled.view(*several, count, length, batch, width), decay, reverse)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (decay,) = ctx.saved_tensors
        return scan(grads[0], decay, not ctx.reverse), None, None


def _in_chunks(values: Tensor, decay: Tensor, reverse: bool) -> None:
    """Replace x by y, `(..., chunks, steps of a chunk, B, W)`."""
    *_, count, length, _, _ = values.shape
    order = -1 if reverse else 1
    steps = values.unbind(-3)[::order]
    for before, after in pairwise(steps):
        after.addcmul_(decay, before)
    ends = steps[-1]
    whole = decay**length
    for before, after in pairwise(ends.unbind(-3)[::order]):
        after.addcmul_(whole, before)
    if count > 1 and length > 1:
        exponents = torch.arange(1, length, device=values.device, dtype=decay.dtype)
        powers = decay ** (exponents.flip(0) if reverse else exponents)[:, None, None]
        later, earlier = (0, 1) if reverse else (1, 0)
        others = values.narrow(-4, later, count - 1).narrow(-3, int(reverse), length - 1)
        others.addcmul_(powers, ends.narrow(-3, earlier, count - 1).unsqueeze(-3))
