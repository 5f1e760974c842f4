"""The linear read-out of several models side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

MANY = 4096
"""Rows of a model from which a kernel of our own pays: few take no time."""


def read_out(hidden: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Every model's linear read-out of its part.

    Args:
        hidden: `(R, ..., H)`.
        weights: `(O, H)` of every model.
        biases: `(O,)` of every model.

    Returns:
        `(R, ..., O)`.
    """
    weight, bias = torch.stack(list(weights)), torch.stack(list(biases))
    rows = hidden.flatten(1, -2)
    if pays(rows, weight):
        found: Tensor = ReadOut.apply(rows.contiguous(), weight.to(rows.dtype), bias.to(rows.dtype))  # type: ignore[no-untyped-call]
    else:
        found = torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)
    return found.view(*hidden.shape[:-1], weight.shape[1])


def pays(rows: Tensor, weight: Tensor) -> bool:
    """Whether our own kernels can multiply these, and are faster."""
    if not rows.is_cuda or rows.shape[1] < MANY or torch.compiler.is_compiling():
        return False
    as_they_are = not torch.is_autocast_enabled("cuda") or torch.get_autocast_dtype("cuda") == rows.dtype
    from ..engines.fused.clusters import linear

    return as_they_are and linear.suits(rows, weight)


class ReadOut(torch.autograd.Function):
    """A read-out by our own kernels, from `(R, M, H)`, `(R, O, H)` and `(R, O)`."""

    @staticmethod
    def forward(context: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        from ..engines.fused.clusters import linear

        context.save_for_backward(rows, weight)
        return linear.outputs(rows, weight, bias)

    @staticmethod
    def backward(context: Any, d_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        from ..engines.fused.clusters import linear

        rows, weight = context.saved_tensors
        if torch.is_grad_enabled():  # somebody wants derivatives of these
            return d_outputs @ weight, d_outputs.mT @ rows, d_outputs.sum(1)
        d_rows, d_weight, d_bias = linear.slopes(rows, weight, d_outputs.contiguous())
        return d_rows, d_weight.to(weight.dtype), d_bias.to(weight.dtype)
