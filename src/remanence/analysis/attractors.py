"""Whether a model forgets how it began: the same input, heard from two starts.

A recurrent network that is driven usually forgets its first state: whatever it began with, after a while its state
depends on the input alone. Some do not, from every start: a trained power law can fall into a second attractor, where
its gates hardly reset and its state hardly moves, however long it listens. A sequence that begins there is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy
import torch
from torch import Tensor

from ..models import states
from .arrays import Integers, Numbers, numbers
from .opened import AnyInput, AnyModel, Heard, Opened, State, opened
from .plain import Result

Start = Literal["zeros", "others"]
APART = 0.5
"""A distance from which on states are no longer the same with some error: unrelated ones are about 1.4 apart."""


@dataclass(frozen=True, eq=False)
class Attractors(Result):
    """How far the states of B sequences are from those they would have, had they begun earlier."""

    start: str
    """What they began with: "zeros", or the state of "others"."""
    steps: Integers
    """Steps after the start at which states were compared, `(S,)`."""
    distance: Numbers
    """Norm of the difference of all hidden values over the mean of their norms, `(S, B)`."""
    apart: Numbers
    """Share of the sequences that are at least `threshold` apart, `(S,)`."""
    threshold: float
    locked: Integers
    """Sequences that still are at the last step."""

    @property
    def share(self) -> float:
        """Of the sequences, those that never came back."""
        return float(self.apart[-1])


def attractors(
    model: AnyModel,
    input: AnyInput,
    *,
    warm: int,
    start: Start = "zeros",
    threshold: float = APART,
    every: int = 10,
    dt: Tensor | None = None,
) -> Attractors:
    """Hear sequences twice: from their beginning, and from step `warm` on with another state.

    Args:
        model: a layer, a `SequenceModel`, a `LanguageModel`, or torch's LSTM or GRU, of one direction.
        input: `(T, B, I)`, or what the model takes: many sequences, for it may be one of a hundred that is lost.
        warm: steps that are heard before the other start. The state after them is taken for one as it should be.
        start: what the second pass begins with: "zeros", or what "others" have at that step, each the state of the next
            sequence.
        threshold: distance from which on a sequence counts as apart.
        every: steps from one comparison to the next.
        dt: times between steps, of models that take them.
    """
    if start not in ("zeros", "others"):
        raise ValueError(f"expected start to be 'zeros' or 'others', got {start!r}")
    inside = opened(model)
    if any(layer.bidirectional for layer in inside.layers):
        raise ValueError("expected a model of one direction, got one that also reads from the end")
    heard = inside.hear(input, dt)
    if heard.lengths is not None:
        raise ValueError("expected sequences of one length, got packed or padded ones")
    whole = len(heard.vectors)
    if not 0 < warm < whole:
        raise ValueError(f"expected warm to be between 1 and {whole - 1}, for there are {whole} steps, got {warm}")
    if every < 1:
        raise ValueError(f"expected every to be at least 1, got {every}")
    with inside.measuring():
        usual = _run(inside, heard, None, slice(warm))
        other = None if start == "zeros" else states.each(lambda part: part.roll(1, dims=1), usual)
        at, distances = [], []
        for part in _pieces(warm, whole, every):
            usual, other = _run(inside, heard, usual, part), _run(inside, heard, other, part)
            at.append(part.stop - warm)
            distances.append(numbers(_distance(inside, usual, other)))
    distance = numpy.stack(distances)
    far = distance >= threshold
    return Attractors(
        start=start,
        steps=numpy.array(at),
        distance=distance,
        apart=far.mean(1),
        threshold=threshold,
        locked=numpy.flatnonzero(far[-1]),
    )


def _pieces(start: int, stop: int, size: int) -> Iterator[slice]:
    for begin in range(start, stop, size):
        yield slice(begin, min(begin + size, stop))


def _run(inside: Opened, heard: Heard, state: State | None, part: slice) -> State:
    """The state of every layer after some steps, by the fastest engine there is."""
    values, dt, after = heard.vectors[part], None if heard.dt is None else heard.dt[part], []
    for number, layer in enumerate(inside.layers):
        values, own = layer(values, None if state is None else state[number], dt)
        after.append(own)
    return tuple(after)


def _distance(inside: Opened, one: State, other: State) -> Tensor:
    """Of all hidden values, `(B,)`."""
    first, second = (
        torch.cat([place["hidden"].double() for place in inside.states(each)], -1) for each in (one, other)
    )
    mean: Tensor = (first.norm(dim=-1) + second.norm(dim=-1)) / 2
    apart: Tensor = (first - second).norm(dim=-1)
    return apart / mean.clamp(min=torch.finfo(mean.dtype).tiny)
