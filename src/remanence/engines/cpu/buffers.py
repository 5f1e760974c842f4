"""Memory of the engine: stretches (chunks of time steps), and buffers that are allocated once and reused.

The engine processes a sequence in stretches of a few steps. The working set of a stretch fits into cache, and values
that are not saved for the backward pass live for one stretch only, so they do not grow with the sequence length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

PLANE = 1 << 18
"""Elements per plane `(steps, B, H)` of a stretch. One megabyte in float32: with smaller planes call overhead
dominates, larger ones fall out of cache."""


@dataclass(frozen=True)
class Stretch:
    """Steps `start` to `stop` of a sequence, processed from the end if `reverse`.

    Values per step are `(T, ...)`. Values of the state are `(T + 1, ...)`: one slot before and one after every step, in
    time order. Slot 0 holds the initial state, or slot T if `reverse`.
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
        """The same steps in buffers that hold only this stretch."""
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
        """One view per step (or slot), in processing order."""
        views = values.unbind(0)
        return views[::-1] if self.reverse else views

    def back(self, values: Tensor) -> tuple[Tensor, ...]:
        """One view per step (or slot), in the order of the backward pass."""
        return self.in_turn(values)[::-1]


def stretches(steps: int, plane: int, reverse: bool) -> Iterator[Stretch]:
    """Split T steps, with planes of this many elements each, into stretches, in processing order."""
    size = stretch_size(steps, plane)
    starts = range(0, steps, size)
    for start in reversed(starts) if reverse else starts:
        yield Stretch(start, min(start + size, steps), reverse)


def stretch_size(steps: int, plane: int) -> int:
    """The maximum number of steps of a stretch."""
    return max(1, min(steps, PLANE // max(1, plane)))


class Scratch:
    """Buffers of one shape, by name. Their contents are valid until the next request for that name."""

    def __init__(self, shape: tuple[int, ...], like: Tensor) -> None:
        self._shape = shape
        self._like = like
        self._made: dict[str, Tensor] = {}
        self._full: dict[float, Tensor] = {}

    def __call__(self, name: str, steps: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """The buffer, or its first steps; `dtype` overrides the common dtype."""
        buffer = self._made.get(name)
        if buffer is None:
            buffer = self._made[name] = torch.empty(self._shape, dtype=dtype or self._like.dtype)
        return buffer if steps is None else buffer[:steps]

    def full(self, value: float, steps: int | None = None) -> Tensor:
        """A read-only buffer filled with this value: torch is slower with a scalar than with a small tensor."""
        buffer = self._full.get(value)
        if buffer is None:
            buffer = self._full[value] = torch.full(self._shape, value, dtype=self._like.dtype)
        return buffer if steps is None else buffer[:steps]
