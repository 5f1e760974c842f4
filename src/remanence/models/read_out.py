"""The linear read-out of several models side by side.

R models, M rows of each, H units, O outputs. A read-out is a tall and narrow matmul, which cuBLAS handles badly in two
ways: it is fast only if rows are aligned to 16 bytes, and for weight gradients it reduces over the rows of a model
sequentially, while most of the GPU is idle. On a GPU there are custom kernels for it. Where they do not apply, the
outputs are padded to 16 bytes and the rows of a model are split into parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..engines.machine import lacking

MANY = 4096
"""Minimum number of rows per model for the special paths; fewer take no time anyway."""
PARTS = 8
"""Number of parts that the rows of a model are split into."""


def read_out(hidden: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """The linear read-out of every model on its own hidden states.

    Args:
        hidden: `(R, ..., M, H)`.
        weights: `(O, H)` of every model.
        biases: `(O,)` of every model.

    Returns:
        `(R, ..., M, O)`. If outputs were padded, this is a view of the wider tensor, not a copy.
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
    """Whether the special paths are worth it. On a CPU they are not."""
    return not torch.compiler.is_compiling() and rows.is_cuda and rows.shape[1] >= MANY


def by_torch(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The read-out of `(R, M, H)` with `(R, O, H)` and `(R, O)`."""
    return torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)


def in_parts(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same in torch, with padded outputs and split rows."""
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
    """Whether the custom kernels apply. Invalid arguments go to torch, which raises the error."""
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
    """The same with the custom kernels."""
    found: Tensor = ReadOut.apply(rows.contiguous(), weight.to(rows.dtype), bias.to(rows.dtype))  # type: ignore[no-untyped-call]
    return found


class ReadOut(torch.autograd.Function):
    """The read-out with custom kernels, from `(R, M, H)`, `(R, O, H)` and `(R, O)`."""

    @staticmethod
    def forward(context: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        from ..engines.cuda import linear

        context.save_for_backward(rows, weight)
        return linear.outputs(rows, weight, bias)

    @staticmethod
    def backward(context: Any, d_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        from ..engines.cuda import linear

        rows, weight = context.saved_tensors
        if torch.is_grad_enabled():  # double backward
            return d_outputs @ weight, d_outputs.mT @ rows, d_outputs.sum(1)
        d_rows, d_weight, d_bias = linear.slopes(rows, weight, d_outputs.contiguous())
        return d_rows, d_weight.to(weight.dtype), d_bias.to(weight.dtype)
