"""How tensors lie for kernels: blocks of units, padded to whole vectors, and gradients without the padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .contract import ALIGNMENT, Kind, OperandGradients, Operands


def padded(whole: Tensor, amounts: Sequence[int], blocks: int = 0) -> Tensor:
    """With zeros after the last entries of its last dimensions.

    Args:
        whole: any tensor.
        amounts: how many, as `torch.nn.functional.pad` takes them.
        blocks: if any, the first of these dimensions is so many blocks, each padded on its own.
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
    """Where the units of all blocks are in a dimension, which may go on after the last block."""

    number: int
    units: int
    """Of a block, with its padding."""
    real: int
    """Of those, how many are no padding."""

    def apart(self, matrix: Tensor, columns: int) -> Tensor:
        """Rows of a matrix that are no padding, of every block, and of those the first columns."""
        rows = matrix[..., : self.number * self.units, :]
        blocks = rows.view(*rows.shape[:-2], self.number, self.units, rows.shape[-1])
        return blocks[..., : self.real, :columns]

    def cut(self, matrix: Tensor, columns: int) -> Tensor:
        """The same, of all blocks one after the other."""
        if matrix.shape[-2:] == (self.number * self.real, columns):
            return matrix
        return self.apart(matrix, columns).flatten(-3, -2).contiguous()


def with_padding(blocks: int, operands: Operands, alignment: int = ALIGNMENT) -> Operands:
    """All of it as the kernels take it: units padded to a multiple of the alignment, contiguous."""
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
    operands = Operands(*(None if value is None else value.contiguous() for value in operands))  # type: ignore[arg-type]
    return operands if operands.lengths is None else operands._replace(lengths=operands.lengths.to(torch.int32))


def without_padding(kind: Kind, gradients: OperandGradients, units: int) -> list[Tensor | None]:
    """Gradients by the operands. Those by matrices come without padding."""
    width = gradients.bias_ih.shape[-1] // kind.blocks

    def cut(slope: Tensor | None) -> Tensor | None:
        return slope if slope is None or width == units else slope[..., :units]

    def cut_blocks(slope: Tensor) -> Tensor:
        if width == units:
            return slope
        return slope.view(*slope.shape[:-1], kind.blocks, width)[..., :units].flatten(-2)

    bias_hh = gradients.bias_hh
    if bias_hh is gradients.bias_ih and bias_hh.dim() > 1:
        # torch copies what it gets twice, but does not see that pieces of it, one per task, are the same memory.
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
    """Weights of a gate with the last unit's for the padding: zeros might be none that the gate can take."""
    return torch.cat((own, own[..., -1:].expand(*own.shape[:-1], more)), -1)
