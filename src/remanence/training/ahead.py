"""Parts of the sequences of fixed sets, looked up for several updates at once.

A look-up is an operation for every replica, since each has a set of its own, and for so few bytes a GPU takes hardly
longer to look up many. The orders go on batch by batch as ever: a checkpoint knows nothing of this.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..tasks.base import Batch
from ..tasks.sources import FixedSet, Parts
from .order import Order

BATCHES = 64
"""Looked up at once, at most."""
BYTES = 2**24
"""Of what is looked up at once, unless it is a single batch."""


class Ahead:
    """What the next batches of several replicas are made from.

    Args:
        orders: of every replica, with the set that it goes through.
    """

    def __init__(self, orders: Sequence[tuple[Order, FixedSet]]) -> None:
        self.orders = list(orders)
        self._known: dict[tuple[tuple[int, int], ...], Parts] = {}
        """By pass and position of every replica."""
        self._passes: list[Tensor] = []
        """Kept for their identity."""

    def show(self, parts: Parts) -> Batch:
        """The sequences that were made from these parts."""
        return self.orders[0][1].show(parts)

    def next(self) -> Parts:
        """What the next batch is made from, `(R, ..., B)`."""
        taken = [order.take() for order, _ in self.orders]
        key = tuple((id(numbers), position) for numbers, position in taken)
        if key not in self._known:
            self._look_up(taken)
        return self._known.pop(key)

    def _look_up(self, taken: Sequence[tuple[Tensor, int]]) -> None:
        left = min(len(numbers) - position for numbers, position in taken)
        one = sum(part[..., 0].numel() * part.itemsize for _, source in self.orders for part in source.parts)
        count = max(1, min(BATCHES, left, BYTES // (one * self.orders[0][0].batch)))
        found = [
            source.parts_of(numbers[position : position + count].flatten())
            for (_, source), (numbers, position) in zip(self.orders, taken, strict=True)
        ]
        batches = [one_by_one(torch.stack(same), count) for same in zip(*found, strict=True)]
        self._passes = [numbers for numbers, _ in taken]
        self._known = {
            tuple((id(numbers), position + later) for numbers, position in taken): parts
            for later, parts in enumerate(zip(*batches, strict=True))
        }


def one_by_one(whole: Tensor, count: int) -> tuple[Tensor, ...]:
    """A part of so many batches, `(R, ..., count B)`, as that of each, `(R, ..., B)`."""
    shape = (*whole.shape[:-1], count, whole.shape[-1] // count)
    return whole.view(shape).movedim(-2, 0).contiguous().unbind()
