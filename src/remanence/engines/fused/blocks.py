"""Blocks of units, one after the other in a dimension: with padding at the end of each, and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import pad


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
