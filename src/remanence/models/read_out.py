"""The linear read-out of several models side by side.

R models, H units, O outputs. A read-out is narrow and has many rows, which cuBLAS does badly in two ways: it takes the
tensor cores only where the rows of every matrix are whole vectors of 16 bytes, and for derivatives by weights it sums
over the rows of a model one by one while most of the chip waits. So on a GPU outputs are padded to whole vectors, and
the rows of a model are cut into parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..engines.machine import lacking

PARTS = 8
"""Parts that the rows of a model are cut into, where that pays."""


def read_out(hidden: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Every model's linear read-out of its part.

    Args:
        hidden: `(R, ..., H)`.
        weights: `(O, H)` of every model.
        biases: `(O,)` of every model.

    Returns:
        `(R, ..., O)`. Where outputs were padded it is the wider tensor without its padding, which nobody copies.
    """
    rows, outputs = hidden[0].numel() // hidden.shape[-1], len(weights[0])
    parts, padding = 1, 0
    if pays(hidden):
        parts = PARTS if rows % PARTS == 0 else 1
        padding = lacking(outputs, hidden.itemsize)
    weight, bias = padded(weights, padding), padded(biases, padding)
    if parts > 1:
        weight, bias = (value.repeat_interleave(parts, 0) for value in (weight, bias))
    flat = hidden.reshape(len(hidden) * parts, rows // parts, hidden.shape[-1])
    found = torch.baddbmm(bias.unsqueeze(1), flat, weight.mT).view(*hidden.shape[:-1], outputs + padding)
    return found[..., :outputs] if padding else found


def pays(hidden: Tensor) -> bool:
    """Whether there is anything to gain: few rows take no time, and the CPU takes any matrix."""
    return hidden.is_cuda and hidden[0].numel() // hidden.shape[-1] >= 4096


def padded(values: Sequence[Tensor], more: int) -> Tensor:
    """Values `(O, ...)` of all models, each with so many rows of zeros below: `(R, O + more, ...)`, in one copy."""
    if more == 0:
        return torch.stack(list(values))
    zeros = values[0].new_zeros(more, *values[0].shape[1:])
    whole = torch.cat([piece for value in values for piece in (value, zeros)])
    return whole.view(len(values), -1, *values[0].shape[1:])
