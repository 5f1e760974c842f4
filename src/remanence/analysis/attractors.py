"""Whether a model forgets its initial state: the same input, run from two initial states.

A driven recurrent network usually forgets its initial state: after a while its state depends only on the input. Some
networks do not do so from every initial state: a trained power law can fall into a second attractor, in which its gates
hardly reset and its state hardly moves, however long the input lasts. A run that starts there is lost: it never meets
another run of the same input. Either of two runs that never meet may be the lost one, so a model that loses one start
from zeros in a hundred has two pairs in a hundred that never meet.
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
from .opened import AnyInput, AnyModel, LayerInput, Opened, State, opened
from .plain import Result

Start = Literal["zeros", "others"]
APART = 0.5
"""Distance above which two states count as different; unrelated states are about 1.4 apart."""


@dataclass(frozen=True, eq=False)
class Attractors(Result):
    """Distance between two runs of each of B sequences, from their beginning and from a restart on."""

    start: str
    """State at the restart: "zeros", or the state of "others"."""
    steps: Integers
    """Steps after the restart at which the two runs were compared, `(S,)`."""
    distance: Numbers
    """Norm of the difference of all hidden values over the mean of their norms, `(S, B)`."""
    apart: Numbers
    """Fraction of sequences whose runs are at least `threshold` apart, `(S,)`."""
    threshold: float
    """Distance from which states count as apart."""
    locked: Integers
    """Sequences whose runs are still apart at the last step: one of the two is lost."""

    @property
    def share(self) -> float:
        """Fraction of sequences whose two runs never met; twice the fraction of starts that are lost, if few are."""
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
    """Run sequences twice, from their beginning and from a restart with another state, and see whether the runs meet.

    Args:
        model: a layer, a `SequenceModel`, a `LanguageModel`, or torch's LSTM or GRU, of one direction.
        input: `(T, B, I)`, or any input of the model. Use many sequences: perhaps only one in a hundred is stuck.
        warm: steps before the restart. The first run begins from zeros, and may itself be lost.
        start: state at the restart: "zeros", or "others" for the state of another sequence at that step. A lost one
            stays lost on another input.
        threshold: distance above which two runs count as apart.
        every: steps between comparisons.
        dt: time between steps, for models that use it.
    """
    if start not in ("zeros", "others"):
        raise ValueError(f"expected start to be 'zeros' or 'others', got {start!r}")
    inside = opened(model)
    if any(layer.bidirectional for layer in inside.layers):
        raise ValueError("expected a unidirectional model, got a bidirectional one")
    drive = inside.layer_input(input, dt)
    if drive.lengths is not None:
        raise ValueError("expected sequences of equal length, got packed or padded ones")
    whole = len(drive.vectors)
    if not 0 < warm < whole:
        raise ValueError(f"expected warm to be between 1 and {whole - 1} for {whole} steps, got {warm}")
    if every < 1:
        raise ValueError(f"expected every to be at least 1, got {every}")
    with inside.measuring():
        usual = _run(inside, drive, None, slice(warm))
        other = None if start == "zeros" else states.each(lambda part: part.roll(1, dims=1), usual)
        at, distances = [], []
        for part in _pieces(warm, whole, every):
            usual, other = _run(inside, drive, usual, part), _run(inside, drive, other, part)
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


def _run(inside: Opened, drive: LayerInput, state: State | None, part: slice) -> State:
    """The state of every layer after these steps, on the fastest engine."""
    values, dt, after = drive.vectors[part], None if drive.dt is None else drive.dt[part], []
    for number, layer in enumerate(inside.layers):
        values, own = layer(values, None if state is None else state[number], dt)
        after.append(own)
    return tuple(after)


def _distance(inside: Opened, one: State, other: State) -> Tensor:
    """Relative distance of all hidden values, `(B,)`."""
    first, second = (
        torch.cat([place["hidden"].double() for place in inside.states(each)], -1) for each in (one, other)
    )
    mean: Tensor = (first.norm(dim=-1) + second.norm(dim=-1)) / 2
    apart: Tensor = (first - second).norm(dim=-1)
    return apart / mean.clamp(min=torch.finfo(mean.dtype).tiny)
