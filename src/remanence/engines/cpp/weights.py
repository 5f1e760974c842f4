"""Gradients of a layer's weights after the last step: d_pre^T [h_{t-1}, x_t, 1].

d_pre is larger than the caches, so it is read once for all three gradients instead of three times.
"""

from __future__ import annotations

import struct
from functools import partial

import torch
from torch import Tensor

from ..kernels.pool import pooled
from .products import address, products

ENOUGH = 512
"""Rows that are worth a thread, as each has sums of its own, which are added at the end."""

Sums = tuple[Tensor, Tensor, Tensor]
"""Gradients of the recurrent matrix, of that of the inputs, and of the bias."""


def compiled_sums(d_pre: Tensor, inputs: Tensor, outputs: Tensor, hidden: Tensor | None, reverse: bool) -> Sums:
    """The gradients by compiled code, see `weights.cpp`.

    Args:
        d_pre: Gradient of the pre-activations, (T B, G H).
        inputs: Inputs, (T, B, I).
        outputs: Hidden states after every step, (T, B, H).
        hidden: Initial hidden state, (B, H); zero if None.
        reverse: Whether the last step is the first.
    """
    (steps, rows, units), features, width = outputs.shape, inputs.shape[-1], d_pre.shape[-1]
    functions, valid = products(), units + features + 1
    columns = valid + -valid % functions.columns()
    parts = max(1, min(torch.get_num_threads(), steps * rows // ENOUGH))
    new = partial(pooled, dtype=torch.float32, device=d_pre.device)
    blocks, sums = new(parts, functions.room_of(width, columns)), new(parts, functions.gates(width), columns)
    hidden = None if hidden is None else hidden.float().contiguous()
    tensors = (d_pre, outputs, hidden, inputs.resolve_neg().contiguous(), blocks, sums)
    numbers = (steps, rows, units, features, width, columns, parts, reverse)
    functions.sum_gradients(struct.pack("@8q6P", *numbers, *map(address, tensors)))
    return _parts(sums[0, :width], units, features)


def sums_by_torch(d_pre: Tensor, inputs: Tensor, outputs: Tensor, hidden: Tensor | None, reverse: bool) -> Sums:
    """The same by one matmul of torch."""
    (steps, rows, units), features = outputs.shape, inputs.shape[-1]
    factors = pooled(steps, rows, units + features + 1, dtype=torch.float32, device=outputs.device)
    before = factors[..., :units]
    later, earlier = (slice(None, -1), slice(1, None)) if reverse else (slice(1, None), slice(None, -1))
    before[later] = outputs[earlier]
    before[-1 if reverse else 0] = 0.0 if hidden is None else hidden
    factors[..., units:-1] = inputs
    factors[..., -1] = 1.0
    return _parts(torch.mm(d_pre.t(), factors.flatten(0, 1)), units, features)


def _parts(total: Tensor, units: int, features: int) -> Sums:
    """Columns of h, of x and of 1, each as a tensor of its own."""
    end = units + features
    return total[:, :units].contiguous(), total[:, units:end].contiguous(), total[:, end].contiguous()
