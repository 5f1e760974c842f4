"""Which sequences come next.

A source with a size is gone through in passes, each in a new random order, or all in that of the source. Batches are
full: those left over at the end of a pass (fewer than a batch) wait for another pass, whose order is another one; in
the order of the source they are never read. With `stateful` training the order is that of the stream: the sequences are
numbered along it, and each of the B lanes reads a stretch of it from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from ..language import jittered_lengths
from ..language.lanes import in_lanes
from ..tasks.base import Batch, Source, side_by_side
from ..tasks.generators import generator
from ..tasks.sources import Endless, FixedSet, Parts, together
from .config import Training

Some = TypeVar("Some")


def make_order(source: Source, config: Training, seed: int, device: torch.device) -> Order | JitteredOrder:
    """The order a configuration asks for."""
    if config.jitter:
        return JitteredOrder(source, config.batch, seed)
    return Order(source, config.batch, seed, device, config.stateful, config.shuffle)


class Order:
    """The batches of one replica, one after the other.

    Args:
        source: where they come from.
        batch: sequences B at a time.
        seed: of the run.
        device: where the source is.
        stateful: whether sequences are read in the order of a stream.
        shuffle: whether every pass has a new random order.
    """

    def __init__(
        self,
        source: Source,
        batch: int,
        seed: int,
        device: torch.device,
        stateful: bool = False,
        shuffle: bool = True,
    ) -> None:
        if source.size is None and stateful:
            raise ValueError(
                "expected a task with a fixed number of sequences for stateful training, got an endless one"
            )
        if source.size is not None and source.size < batch:
            raise ValueError(f"expected training.batch to be at most the {source.size} training sequences, got {batch}")
        self.source = source
        self.batch = batch
        self.device = device
        self.stateful = stateful
        self.shuffle = shuffle
        self.generator = generator(seed, "order", device)
        self.position = 0
        """Batches taken from the present pass."""
        self.factor = 1.0
        """What the learning rate of the latest batch is multiplied with."""
        self.length = None if source.size is None else source.size // batch
        """Batches of a pass."""
        self._numbers: Tensor | None = None
        self._before_pass = self.generator.get_state()

    @property
    def at_start(self) -> bool:
        """Whether the next batch begins a pass."""
        return self.length is not None and self.position in (0, self.length)

    def next(self) -> Batch:
        """The next batch."""
        if self.length is None:
            return self.draw(self.source.draw)
        numbers, position = self.take()
        return self.source.pick(numbers[position])

    def draw(self, how: Callable[[int, torch.Generator], Some]) -> Some:
        """Go on by a batch of a source without end, which is drawn like this."""
        self.position += 1
        return how(self.batch, self.generator)

    def take(self) -> tuple[Tensor, int]:
        """Go on by a batch of a source with a size: the numbers of its pass `(batches, B)`, and which batch it is."""
        if self.position == self.length:
            self.position = 0
            self._numbers = None
        if self._numbers is None:
            self._numbers = self._pass()
        self.position += 1
        return self._numbers, self.position - 1

    def _pass(self) -> Tensor:
        """The numbers of the sequences of a pass, `(batches, B)`."""
        assert self.length is not None
        assert self.source.size is not None
        if self.stateful:
            return in_lanes(torch.arange(self.source.size, device=self.device), self.batch)
        self._before_pass = self.generator.get_state()
        if self.shuffle:
            numbers = torch.randperm(self.source.size, generator=self.generator, device=self.device)
        else:
            numbers = torch.arange(self.source.size, device=self.device)
        return numbers[: self.length * self.batch].view(self.length, self.batch)

    # For checkpoints: the generator as it was before the present pass, from which the pass is made again.

    @property
    def generator_state(self) -> Tensor:
        """Bytes to go on from, together with the position."""
        return self._before_pass if self.length is not None else self.generator.get_state()

    def resume_at(self, generator_state: Tensor, position: int) -> None:
        """Go on where another order was."""
        self.generator.set_state(generator_state)
        self._before_pass = generator_state
        self.position = position
        self._numbers = self._pass() if position > 0 and self.length is not None else None


FULL, SHORTEST = 0.95, 5
"""Share of chunks around the usual length, the others are half as long; and the shortest there is."""


@runtime_checkable
class Streamed(Protocol):
    """A source that is one stream."""

    length: int
    """Usual length of a chunk."""

    def lanes(self, batch: int) -> Tensor:
        """The stream in so many lanes side by side, `(steps, B)`."""

    def cut(self, lanes: Tensor, begin: int, end: int) -> Batch:
        """Steps of all lanes, each with what comes next."""


def usual_updates(source: Source, batch: int) -> int:
    """Chunks of a pass on average."""
    stream = streamed(source)
    mean = max(SHORTEST, FULL * stream.length + (1 - FULL) * stream.length / 2 - 0.5)  # a length has no fraction
    return max(1, round((len(stream.lanes(batch)) - 1) / mean))


def streamed(source: Source) -> Streamed:
    """The source, if it is a stream."""
    if not isinstance(source, Streamed):
        raise ValueError("expected training.jitter with a task that reads a text, got it with another")
    return source


class JitteredOrder:
    """The batches of one replica, one after the other; see `Order`, which has the same methods.

    Args:
        source: where they come from.
        batch: lanes B.
        seed: of the run.
    """

    def __init__(self, source: Source, batch: int, seed: int) -> None:
        self.source = source
        self.stream = streamed(source)
        self.lanes = self.stream.lanes(batch)
        self.generator = generator(seed, "order", torch.device("cpu"))  # lengths are of the host
        self.position = 0
        self.factor = 1.0
        self._before_pass = self.generator.get_state()
        self._bounds = self._pass()

    @property
    def at_start(self) -> bool:
        """Whether the next batch begins a pass."""
        return self.position in (0, len(self._bounds) - 1)

    def next(self) -> Batch:
        """The next batch."""
        if self.position == len(self._bounds) - 1:
            self.position = 0
            self._bounds = self._pass()
        begin, end = self._bounds[self.position : self.position + 2]
        self.position += 1
        self.factor = (end - begin) / self.stream.length
        return self.stream.cut(self.lanes, begin, end)

    def _pass(self) -> list[int]:
        """Where the chunks of a pass begin, and where the last one ends."""
        self._before_pass = self.generator.get_state()
        last = len(self.lanes) - 1
        lengths = jittered_lengths(last + 1, self.generator, self.stream.length, full=FULL, least=SHORTEST)
        return [0, *(min(end, last) for end in accumulate(lengths))]

    @property
    def generator_state(self) -> Tensor:
        """Bytes to go on from, together with the position."""
        return self._before_pass

    def resume_at(self, generator_state: Tensor, position: int) -> None:
        """Go on where another order was."""
        self.generator.set_state(generator_state)
        self.position = position
        self._bounds = self._pass()


class Drawn(NamedTuple):
    """A batch of all replicas to be shown."""

    parts: Parts
    """What it is computed from: all that differs from one batch to the next."""
    show: Callable[[Parts], Batch]

    def shown(self) -> Batch:
        """Inputs and targets."""
        return self.show(self.parts)


class Batches:
    """The batches of several replicas, one after the other.

    Args:
        orders: of every replica.
    """

    def __init__(self, orders: Sequence[Order | JitteredOrder]) -> None:
        self.orders = list(orders)
        plain = [order for order in orders if isinstance(order, Order)]
        sets = [(order, order.source) for order in plain if isinstance(order.source, FixedSet)]
        self._endless = [(order, order.source) for order in plain if isinstance(order.source, Endless)]
        self._prefetch = Prefetch(sets) if len(sets) == len(self.orders) > 1 else None

    def next(self) -> Drawn:
        """The next batch of each."""
        if self._prefetch is not None:
            return Drawn(self._prefetch.next(), self._prefetch.show)
        if len(self._endless) == len(self.orders) > 1:
            drawn = [order.draw(source.task.numbers) for order, source in self._endless]
            return Drawn(together(drawn), self._endless[0][1].show)
        return ready_made(side_by_side([order.next() for order in self.orders]))


def ready_made(batch: Batch) -> Drawn:
    """A batch that is there already."""
    there = {name: value for name, value in vars(batch).items() if value is not None}
    return Drawn(tuple(there.values()), lambda parts: Batch(**dict(zip(there, parts, strict=True))))


PREFETCH_BATCHES = 64
"""Looked up at once, at most."""
PREFETCH_BYTES = 2**24
"""Of what is looked up at once, unless it is a single batch."""


class Prefetch:
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
        count = max(1, min(PREFETCH_BATCHES, left, PREFETCH_BYTES // (one * self.orders[0][0].batch)))
        found = [
            source.parts_of(numbers[position : position + count].flatten())
            for (_, source), (numbers, position) in zip(self.orders, taken, strict=True)
        ]
        batches = [split_batches(torch.stack(same), count) for same in zip(*found, strict=True)]
        self._passes = [numbers for numbers, _ in taken]
        self._known = {
            tuple((id(numbers), position + later) for numbers, position in taken): parts
            for later, parts in enumerate(zip(*batches, strict=True))
        }


def split_batches(whole: Tensor, count: int) -> tuple[Tensor, ...]:
    """A part of so many batches, `(R, ..., count B)`, as that of each, `(R, ..., B)`."""
    shape = (*whole.shape[:-1], count, whole.shape[-1] // count)
    return whole.view(shape).movedim(-2, 0).contiguous().unbind()
