"""The linear read-out of several models side by side.

R models, M rows of each, H units, O outputs. A read-out is narrow and has many rows, which cuBLAS does badly in two
ways: it loads matrices well only where their rows are whole vectors of 16 bytes, and for derivatives by weights it sums
over the rows of a model one by one while most of the chip waits. So on a GPU there are kernels for it; for what they do
not take outputs are padded to whole vectors, and the rows of a model are cut into parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..engines.machine import lacking

MANY = 4096
"""Rows of a model from which there is something to gain: few take no time."""
PARTS = 8
"""Parts that the rows of a model are cut into."""


def read_out(hidden: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Every model's linear read-out of its part.

    Args:
        hidden: `(R, ..., M, H)`.
        weights: `(O, H)` of every model.
        biases: `(O,)` of every model.

    Returns:
        `(R, ..., M, O)`. Where outputs were padded it is the wider tensor without its padding, which nobody copies.
    """
    weight, bias = torch.stack(list(weights)), torch.stack(list(biases))
    rows = hidden.flatten(1, -2)
    if not many(rows):
        found = by_torch(rows, weight, bias)
    elif kernels_take(rows, weight, bias):
        found = by_kernels(rows, weight, bias)
    else:
        found = in_parts(rows, weight, bias)
    return found.view(*hidden.shape[:-1], found.shape[-1])


def many(rows: Tensor) -> bool:
    """Whether there is anything to gain. A CPU takes any matrix."""
    return not torch.compiler.is_compiling() and rows.is_cuda and rows.shape[1] >= MANY


def by_torch(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The read-out of `(R, M, H)` with `(R, O, H)` and `(R, O)`."""
    return torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)


def in_parts(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same by torch, with what makes it faster."""
    models, number, units = rows.shape
    outputs = weight.shape[1]
    padding = lacking(outputs, rows.itemsize)
    if padding:
        weight, bias = pad(weight, (0, 0, 0, padding)), pad(bias, (0, padding))
    parts = PARTS if number % PARTS == 0 else 1
    if parts > 1:
        weight, bias = (value.repeat_interleave(parts, 0) for value in (weight, bias))
    found = by_torch(rows.reshape(models * parts, number // parts, units), weight, bias)
    return found.view(models, number, outputs + padding)[..., :outputs]


def kernels_take(rows: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Whether there are kernels for this. What is wrong with it, torch says best."""
    from ..engines.cuda import linear

    if torch.is_autocast_enabled("cuda"):
        fits = rows.dtype == torch.get_autocast_dtype("cuda")
    else:
        fits = rows.dtype == weight.dtype == bias.dtype
    models, _, units = rows.shape
    outputs = weight.shape[1]
    return (
        fits
        and weight.shape == (models, outputs, units)
        and bias.shape == (models, outputs)
        and rows.device == weight.device == bias.device
        and linear.suits(rows, outputs)
    )


def by_kernels(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same by our own kernels."""
    found: Tensor = ReadOut.apply(rows.contiguous(), weight.to(rows.dtype), bias.to(rows.dtype))  # type: ignore[no-untyped-call]
    return found


class ReadOut(torch.autograd.Function):
    """A read-out by our own kernels, from `(R, M, H)`, `(R, O, H)` and `(R, O)`."""

    @staticmethod
    def forward(context: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        from ..engines.cuda import linear

        context.save_for_backward(rows, weight)
        return linear.outputs(rows, weight, bias)

    @staticmethod
    def backward(context: Any, d_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        from ..engines.cuda import linear

        rows, weight = context.saved_tensors
        if torch.is_grad_enabled():  # somebody wants derivatives of these
            return d_outputs @ weight, d_outputs.mT @ rows, d_outputs.sum(1)
        d_rows, d_weight, d_bias = linear.slopes(rows, weight, d_outputs.contiguous())
        return d_rows, d_weight.to(weight.dtype), d_bias.to(weight.dtype)
