"""A stream read in chunks of random lengths, as AWD-LSTM does: no two passes begin their chunks at the same tokens."""

from __future__ import annotations

from itertools import accumulate
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ..language import jittered_lengths
from ..tasks.base import Batch, Source
from ..tasks.generators import generator

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

    def go_to(self, generator_state: Tensor, position: int) -> None:
        """Go on where another order was."""
        self.generator.set_state(generator_state)
        self.position = position
        self._bounds = self._pass()
