"""Memory layout of kernel operands: blocks of units padded to whole vectors, and gradients without the padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .contract import ALIGNMENT, Kind, OperandGradients, Operands


def padded(whole: Tensor, amounts: Sequence[int], blocks: int = 0) -> Tensor:
    """Zero-pad the last dimensions of a tensor.

    Args:
        whole: Tensor to pad.
        amounts: Padding, as for `torch.nn.functional.pad`.
        blocks: If not 0, the first of the padded dimensions consists of this many blocks, each padded separately.
    """
    if not any(amounts):
        return whole
    if not blocks:
        return pad(whole, tuple(amounts))
    first = whole.dim() - len(amounts) // 2
    shape = whole.shape
    apart = whole.reshape(*shape[:first], blocks, -1, *shape[first + 1 :])
    return pad(apart, tuple(amounts)).flatten(first, first + 1)


class Blocks(NamedTuple):
    """Position of the units of all blocks in a dimension, which may be longer than all blocks together."""

    number: int
    units: int
    """Units per block, including padding."""
    real: int
    """Units per block without padding."""

    def apart(self, matrix: Tensor, columns: int) -> Tensor:
        """The rows of every block without padding, and their first columns: `(..., number, real, columns)`."""
        rows = matrix[..., : self.number * self.units, :]
        blocks = rows.view(*rows.shape[:-2], self.number, self.units, rows.shape[-1])
        return blocks[..., : self.real, :columns]

    def cut(self, matrix: Tensor, columns: int) -> Tensor:
        """The same with all blocks concatenated: `(..., number * real, columns)`."""
        if matrix.shape[-2:] == (self.number * self.real, columns):
            return matrix
        return self.apart(matrix, columns).flatten(-3, -2).contiguous()


def with_padding(blocks: int, operands: Operands, alignment: int = ALIGNMENT) -> Operands:
    """Operands in the form the kernels expect: units padded to a multiple of the alignment, contiguous."""
    more = -operands.weight_hh.shape[-1] % alignment
    if more:

        def wider(value: Tensor | None, *amounts: int, by_block: bool = False) -> Tensor | None:
            return None if value is None else padded(value, amounts, blocks if by_block else 0)

        operands = operands._replace(
            weight_ih=padded(operands.weight_ih, (0, 0, 0, more), blocks),
            weight_hh=padded(operands.weight_hh, (0, more, 0, more), blocks),
            bias_ih=wider(operands.bias_ih, 0, more, by_block=True),
            bias_hh=wider(operands.bias_hh, 0, more, by_block=True),
            own=None if operands.own is None else _with_last(operands.own, more),
            hidden=wider(operands.hidden, 0, more),
            cell=wider(operands.cell, 0, more),
            carried=wider(operands.carried, 0, more),
        )
    operands = Operands(*[None if value is None else value.contiguous() for value in operands])  # type: ignore[arg-type]
    return operands if operands.lengths is None else operands._replace(lengths=operands.lengths.to(torch.int32))


def without_padding(kind: Kind, gradients: OperandGradients, units: int) -> list[Tensor | None]:
    """Gradients of the operands with padding removed. Those of the matrices are unpadded already."""
    width = gradients.bias_ih.shape[-1] // kind.blocks

    def cut(slope: Tensor | None) -> Tensor | None:
        return slope if slope is None or width == units else slope[..., :units]

    def cut_blocks(slope: Tensor) -> Tensor:
        if width == units:
            return slope
        return slope.view(*slope.shape[:-1], kind.blocks, width)[..., :units].flatten(-2)

    bias_hh = gradients.bias_hh
    if bias_hh is gradients.bias_ih and bias_hh.dim() > 1:
        # torch copies a gradient that is returned twice, but does not notice that slices of it (one per task) alias.
        bias_hh = bias_hh.clone()
    return [
        gradients.inputs,
        gradients.weight_ih,
        gradients.weight_hh,
        cut_blocks(gradients.bias_ih),
        cut_blocks(bias_hh),
        cut(gradients.own),
        gradients.dt,
        None,  # lengths
        cut(gradients.hidden),
        cut(gradients.cell),
        cut(gradients.carried),
    ]


def _with_last(own: Tensor, more: int) -> Tensor:
    """Per-unit weights of a gate, padded with those of the last unit: zeros may be outside the gate's domain."""
    return torch.cat((own, own[..., -1:].expand(*own.shape[:-1], more)), -1)
