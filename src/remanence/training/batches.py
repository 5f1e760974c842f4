"""The batches of a training run.

`Order` and `JitteredOrder` choose the sequences of one replica, `Batches` combines those of all replicas, `Prefetch`
looks up fixed sets for several updates at once.

A source with a size is read in passes, shuffled before each pass or in the order of the source. All batches are full:
sequences left over at the end of a pass are dropped from it and may come up in the next, which has a new order; without
shuffling they are never read. In `stateful` training sequences are chunks of a stream and are numbered along it; each
of the B lanes reads a contiguous section of the stream from its start.
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
    """The order requested by a configuration."""
    if config.jitter:
        return JitteredOrder(source, config.batch, seed)
    return Order(source, config.batch, seed, device, config.stateful, config.shuffle)


class Order:
    """The batches of one replica, in order.

    Args:
        source: Source of the sequences.
        batch: Batch size B.
        seed: Seed of the run.
        device: Device of the source.
        stateful: Whether sequences are read in the order of a stream.
        shuffle: Whether every pass has a new random order.
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
        """Batches taken from the current pass."""
        self.factor = 1.0
        """Factor of the learning rate for the latest batch."""
        self.length = None if source.size is None else source.size // batch
        """Batches per pass."""
        self._numbers: Tensor | None = None
        self._before_pass = self.generator.get_state()

    @property
    def at_start(self) -> bool:
        """Whether the next batch is the first of a pass."""
        return self.length is not None and self.position in (0, self.length)

    def next(self) -> Batch:
        """The next batch."""
        if self.length is None:
            return self.draw(self.source.draw)
        numbers, position = self.take()
        return self.source.pick(numbers[position])

    def draw(self, how: Callable[[int, torch.Generator], Some]) -> Some:
        """Advance by one batch of an endless source, drawn by `how`."""
        self.position += 1
        return how(self.batch, self.generator)

    def take(self) -> tuple[Tensor, int]:
        """Advance by one batch of a source with a size: indices of the pass `(batches, B)`, and number of the batch."""
        if self.position == self.length:
            self.position = 0
            self._numbers = None
        if self._numbers is None:
            self._numbers = self._pass()
        self.position += 1
        return self._numbers, self.position - 1

    def _pass(self) -> Tensor:
        """The indices of the sequences of a pass, `(batches, B)`."""
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

    # For checkpoints: the generator state before the current pass, from which the pass is drawn again.

    @property
    def generator_state(self) -> Tensor:
        """Generator state to resume from, together with the position."""
        return self._before_pass if self.length is not None else self.generator.get_state()

    def resume_at(self, generator_state: Tensor, position: int) -> None:
        """Resume at a saved generator state and position."""
        self.generator.set_state(generator_state)
        self._before_pass = generator_state
        self.position = position
        self._numbers = self._pass() if position > 0 and self.length is not None else None


FULL, SHORTEST = 0.95, 5
"""Fraction of jittered chunks around the usual length (the others are half as long), and the minimum length."""


@runtime_checkable
class Streamed(Protocol):
    """A source that is a single stream."""

    length: int
    """Usual chunk length."""

    def lanes(self, batch: int) -> Tensor:
        """The stream split into `batch` lanes side by side, `(steps, B)`."""

    def cut(self, lanes: Tensor, begin: int, end: int) -> Batch:
        """Steps `begin` to `end` of all lanes as inputs, with the next steps as targets."""


def usual_updates(source: Source, batch: int) -> int:
    """Mean number of chunks per pass."""
    stream = streamed(source)
    mean = max(SHORTEST, FULL * stream.length + (1 - FULL) * stream.length / 2 - 0.5)  # lengths are rounded down
    return max(1, round((len(stream.lanes(batch)) - 1) / mean))


def streamed(source: Source) -> Streamed:
    """The source as a stream; a `ValueError` if it is not one."""
    if not isinstance(source, Streamed):
        raise ValueError("expected training.jitter only with a task that reads a text, got another task")
    return source


class JitteredOrder:
    """A stream in chunks of random lengths, as in AWD-LSTM, so that chunk boundaries differ between passes.

    Has the same methods as `Order`.

    Args:
        source: Source of the stream.
        batch: Number of lanes B.
        seed: Seed of the run.
    """

    def __init__(self, source: Source, batch: int, seed: int) -> None:
        self.source = source
        self.stream = streamed(source)
        self.lanes = self.stream.lanes(batch)
        self.generator = generator(seed, "order", torch.device("cpu"))  # lengths are needed on the host
        self.position = 0
        self.factor = 1.0
        self._before_pass = self.generator.get_state()
        self._bounds = self._pass()

    @property
    def at_start(self) -> bool:
        """Whether the next batch is the first of a pass."""
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
        """The first step of every chunk of a pass, and the end of the last one."""
        self._before_pass = self.generator.get_state()
        last = len(self.lanes) - 1
        lengths = jittered_lengths(last + 1, self.generator, self.stream.length, full=FULL, least=SHORTEST)
        return [0, *(min(end, last) for end in accumulate(lengths))]

    @property
    def generator_state(self) -> Tensor:
        """Generator state to resume from, together with the position."""
        return self._before_pass

    def resume_at(self, generator_state: Tensor, position: int) -> None:
        """Resume at a saved generator state and position."""
        self.generator.set_state(generator_state)
        self.position = position
        self._bounds = self._pass()


class Drawn(NamedTuple):
    """The next batch of all replicas, before inputs and targets are computed.

    The random draws are small: ten bytes per sequence in the copy task, whose inputs and targets have thousands. They
    are stacked over replicas, and inputs and targets are then computed for all replicas at once, inside the captured
    CUDA graph if there is one.
    """

    parts: Parts
    """The tensors it is computed from: everything that differs between batches."""
    show: Callable[[Parts], Batch]

    def shown(self) -> Batch:
        """Inputs and targets."""
        return self.show(self.parts)


class Batches:
    """The batches of several replicas, in order.

    Args:
        orders: Order of every replica.
    """

    def __init__(self, orders: Sequence[Order | JitteredOrder]) -> None:
        self.orders = list(orders)
        plain = [order for order in orders if isinstance(order, Order)]
        sets = [(order, order.source) for order in plain if isinstance(order.source, FixedSet)]
        self._endless = [(order, order.source) for order in plain if isinstance(order.source, Endless)]
        self._prefetch = Prefetch(sets) if len(sets) == len(self.orders) > 1 else None

    def next(self) -> Drawn:
        """The next batch of every replica."""
        if self._prefetch is not None:
            return Drawn(self._prefetch.next(), self._prefetch.show)
        if len(self._endless) == len(self.orders) > 1:
            drawn = [order.draw(source.task.numbers) for order, source in self._endless]
            return Drawn(together(drawn), self._endless[0][1].show)
        return ready_made(side_by_side([order.next() for order in self.orders]))


def ready_made(batch: Batch) -> Drawn:
    """A batch whose inputs and targets exist already."""
    there = {name: value for name, value in vars(batch).items() if value is not None}
    return Drawn(tuple(there.values()), lambda parts: Batch(**dict(zip(there, parts, strict=True))))


PREFETCH_BATCHES = 64
"""Maximum number of batches looked up at once."""
PREFETCH_BYTES = 2**24
"""Maximum number of bytes looked up at once, except for a single batch."""


class Prefetch:
    """The parts of the next batches of several replicas, looked up in fixed sets for several updates at once.

    Every replica has its own set, so a look-up is one kernel per replica, and for so few bytes looking up many batches
    takes a GPU hardly longer than one. Orders still advance batch by batch: checkpoints do not depend on prefetching.

    Args:
        orders: Order of every replica, with its set.
    """

    def __init__(self, orders: Sequence[tuple[Order, FixedSet]]) -> None:
        self.orders = list(orders)
        self._known: dict[tuple[tuple[int, int], ...], Parts] = {}
        """Prefetched parts by pass and position of every replica."""
        self._passes: list[Tensor] = []
        """References that keep the `id` of the current passes unique."""

    def show(self, parts: Parts) -> Batch:
        """The sequences computed from these parts."""
        return self.orders[0][1].show(parts)

    def next(self) -> Parts:
        """The parts of the next batch, `(R, ..., B)`."""
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
    """Split a part of `count` batches, `(R, ..., count B)`, into one part `(R, ..., B)` per batch."""
    shape = (*whole.shape[:-1], count, whole.shape[-1] // count)
    return whole.view(shape).movedim(-2, 0).contiguous().unbind()
