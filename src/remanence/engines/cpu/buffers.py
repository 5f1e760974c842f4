"""Memory of the engine: stretches of time, and buffers that are made once and used again.

The engine works through a sequence in stretches of a few steps. What a stretch needs fits into cache, and what is not
kept for the backward pass is needed for one stretch only, so memory does not grow with the length of the sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

PLANE = 1 << 18
"""Numbers per plane `(steps, B, H)` of a stretch. One megabyte in float32: smaller ones pay for calls, larger ones
fall out of cache."""


@dataclass(frozen=True)
class Stretch:
    """Steps `start` to `stop` of a sequence, worked through backwards if `reverse`.

    Values that exist at every step are `(T, ...)`. Values of the state are `(T + 1, ...)`: one slot before and one
    after every step, in the order of time. Going forward, slot 0 holds the initial state; in reverse slot T does.
    """

    start: int
    stop: int
    reverse: bool

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def first(self) -> int:
        """The slot of the state before its first step."""
        return self.stop if self.reverse else self.start

    @property
    def last(self) -> int:
        """The slot of the state after its last step."""
        return self.start if self.reverse else self.stop

    @property
    def local(self) -> Stretch:
        """The same steps in buffers that hold this stretch alone."""
        return Stretch(0, len(self), self.reverse)

    def of(self, values: Tensor) -> Tensor:
        """`(T, ...)` to `(steps, ...)`."""
        return values[self.start : self.stop]

    def slots(self, state: Tensor) -> Tensor:
        """`(T + 1, ...)` to `(steps + 1, ...)`."""
        return state[self.start : self.stop + 1]

    def before(self, state: Tensor) -> Tensor:
        """The state before each step: `(T + 1, ...)` to `(steps, ...)`."""
        return state[self.start + self.reverse : self.stop + self.reverse]

    def after(self, state: Tensor) -> Tensor:
        """The state after each step: `(T + 1, ...)` to `(steps, ...)`."""
        return state[self.start + (not self.reverse) : self.stop + (not self.reverse)]

    def in_turn(self, values: Tensor) -> tuple[Tensor, ...]:
        """One view per step (or slot), in the order in which they are worked through."""
        views = values.unbind(0)
        return views[::-1] if self.reverse else views

    def back(self, values: Tensor) -> tuple[Tensor, ...]:
        """One view per step (or slot), in the order of the backward pass."""
        return self.in_turn(values)[::-1]


def stretches(steps: int, plane: int, reverse: bool) -> Iterator[Stretch]:
    """Cut T steps, of which each has planes of this many numbers, in the order in which they are worked through."""
    size = stretch_size(steps, plane)
    starts = range(0, steps, size)
    for start in reversed(starts) if reverse else starts:
        yield Stretch(start, min(start + size, steps), reverse)


def stretch_size(steps: int, plane: int) -> int:
    """The most steps a stretch has."""
    return max(1, min(steps, PLANE // max(1, plane)))


class Scratch:
    """Buffers of one shape, by name. Their contents last until the next one who asks for that name."""

    def __init__(self, shape: tuple[int, ...], like: Tensor) -> None:
        self._shape = shape
        self._like = like
        self._made: dict[str, Tensor] = {}
        self._full: dict[float, Tensor] = {}

    def __call__(self, name: str, steps: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """The buffer, or its first steps; of another dtype than the others, if one is given."""
        buffer = self._made.get(name)
        if buffer is None:
            buffer = self._made[name] = torch.empty(self._shape, dtype=dtype or self._like.dtype)
        return buffer if steps is None else buffer[:steps]

    def full(self, value: float, steps: int | None = None) -> Tensor:
        """A buffer full of this number, to be read only: torch takes longer over a number than over a small tensor."""
        buffer = self._full.get(value)
        if buffer is None:
            buffer = self._full[value] = torch.full(self._shape, value, dtype=self._like.dtype)
        return buffer if steps is None else buffer[:steps]
