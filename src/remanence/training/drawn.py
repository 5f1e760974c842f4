"""The next batch of all replicas, before anything is computed.

What a seed draws is small: of copy ten bytes a sequence, where inputs and targets have thousands. It is put side by
side as it is, and inputs and targets are computed from it for all replicas at once, in the recorded update where there
is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..tasks.base import Batch, side_by_side
from ..tasks.sources import Endless, FixedSet, Parts, together
from .ahead import Ahead
from .jittered import JitteredOrder
from .order import Order


class Drawn(NamedTuple):
    """A batch of all replicas to be shown."""

    parts: Parts
    """What it is computed from: all that differs from one batch to the next."""
    show: Callable[[Parts], Batch]

    def shown(self) -> Batch:
        """Inputs and targets."""
        return self.show(self.parts)


class Draws:
    """The batches of several replicas, one after the other.

    Args:
        orders: of every replica.
    """

    def __init__(self, orders: Sequence[Order | JitteredOrder]) -> None:
        self.orders = list(orders)
        plain = [order for order in orders if isinstance(order, Order)]
        sets = [(order, order.source) for order in plain if isinstance(order.source, FixedSet)]
        self._endless = [(order, order.source) for order in plain if isinstance(order.source, Endless)]
        self._ahead = Ahead(sets) if len(sets) == len(self.orders) > 1 else None

    def next(self) -> Drawn:
        """The next batch of each."""
        if self._ahead is not None:
            return Drawn(self._ahead.next(), self._ahead.show)
        if len(self._endless) == len(self.orders) > 1:
            drawn = [order.draw(source.task.numbers) for order, source in self._endless]
            return Drawn(together(drawn), self._endless[0][1].show)
        return as_it_is(side_by_side([order.next() for order in self.orders]))


def as_it_is(batch: Batch) -> Drawn:
    """A batch that is there already."""
    there = {name: value for name, value in vars(batch).items() if value is not None}
    return Drawn(tuple(there.values()), lambda parts: Batch(**dict(zip(there, parts, strict=True))))
