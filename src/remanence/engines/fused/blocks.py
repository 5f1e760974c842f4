"""Blocks of units, one after the other in a dimension: with padding at the end of each, and without."""

from __future__ import annotations

from collections.abc import Sequence

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


def cut(matrix: Tensor, blocks: int, units: int, columns: int) -> Tensor:
    """The first `units` rows of every block of a matrix, and of those the first columns."""
    *lead, rows, width = matrix.shape
    if rows == blocks * units and width == columns:
        return matrix
    return matrix.view(*lead, blocks, rows // blocks, width)[..., :units, :columns].flatten(-3, -2).contiguous()
