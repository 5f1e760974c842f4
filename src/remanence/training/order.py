"""Which sequences come next.

A source with a size is gone through in passes, each in a new random order, or all in that of the source. Batches are
full: those left over at the end of a pass (fewer than a batch) wait for another pass, whose order is another one; in
the order of the source they are never read. With `stateful` training the order is that of the stream: the sequences are
numbered along it, and each of the B lanes reads a stretch of it from its start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from ..language.lanes import in_lanes
from ..tasks.base import Batch, Source
from ..tasks.generators import generator
from .config import Training
from .jittered import JitteredOrder

Some = TypeVar("Some")


def order_of(source: Source, config: Training, seed: int, device: torch.device) -> Order | JitteredOrder:
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

    def go_to(self, generator_state: Tensor, position: int) -> None:
        """Go on where another order was."""
        self.generator.set_state(generator_state)
        self._before_pass = generator_state
        self.position = position
        self._numbers = self._pass() if position > 0 and self.length is not None else None
