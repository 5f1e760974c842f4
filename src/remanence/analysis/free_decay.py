"""The remanence curve: drive a trained model, switch the input off, and watch what stays in its cells.

Two things can be meant by "off":

* `off="input"`: the vectors that go into the first layer are zero from then on. All else goes on: hidden values feed
  back, biases act, cells are written to. This is what the trained network does in silence.
* `off="gates"`: the free-input regime in which the papers define timescales. The gates of every unit are those of its
  biases alone (no input, no hidden values), and nothing is written: c_n = f c_{n-1}. An exponential gate then decays
  with the timescale of its bias, and a power-law unit by the age it has.

In silence a network comes to rest at cells that its biases write, which are no memory of what it heard.
`against="rest"` therefore watches the distance to the cells of the same model that heard silence from the start;
`against="zero"` watches the cells as they are. A unit whose distance is no more than rounding when the input is
switched off held nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy
import torch
from torch import Tensor

from ..cells import GatedCell, PhasedLSTMCell
from ..nn.place import Place
from ..nn.recurrent import Recurrent
from .arrays import Integers, Numbers, numbers
from .decay_fits import DecayFits, fit_decay
from .opened import STEPS, AnyInput, AnyModel, Heard, Opened, State, opened
from .plain import Result

Off = Literal["input", "gates"]
Against = Literal["rest", "zero"]
FITTED = 60
"""Curves are fitted at about so many steps, evenly spaced on a logarithmic axis: early and late ones count alike."""
DIGITS = 100
"""A curve is fitted down to so many times the smallest relative difference of the model's numbers."""
ROUNDING = 8
"""Cells of two passes that heard the same differ by up to two times that smallest difference, relative to the largest
cell of their layer: units read each other, so a small cell is no better known than a large one. Four times as much is
still taken for rounding."""


@dataclass(frozen=True, eq=False)
class LayerDecay(Result):
    """What stays in the H cells of one layer and direction after n = 0 ... N steps of silence."""

    name: str
    """l0, l1, ..."""
    start: Numbers
    """Mean over sequences of the absolute value when the input is switched off, `(H,)`; 0 where it is only rounding."""
    remaining: Numbers
    """The same n steps later, relative to `start`, `(N + 1, H)`; not a number for a unit that held nothing."""
    mean: Numbers
    """All units together, `(N + 1,)`: the sum of the absolute values, relative to that at the start."""
    fits: DecayFits
    """Of every unit, `(H,)`."""
    mean_fit: DecayFits
    """Of the mean, `(1,)`."""


@dataclass(frozen=True, eq=False)
class FreeDecay(Result):
    """Free decay of all layers of a model."""

    off: str
    against: str
    steps: Integers
    """0 ... N."""
    sequences: int
    layers: list[LayerDecay]


def free_decay(
    model: AnyModel,
    input: AnyInput,
    *,
    steps: int = 200,
    off: Off = "input",
    against: Against | None = None,
    dt: Tensor | None = None,
    floor: float | None = None,
) -> FreeDecay:
    """Drive a model with real input, switch it off and watch the cells.

    Args:
        model: a layer, a `SequenceModel`, a `LanguageModel`, or torch's LSTM or GRU.
        input: what the model hears before: an input as it takes it, a batch of a task (which is heard to the end of
            every sequence), or a text.
        steps: steps of silence N, of unit length.
        off: what off means, see above.
        against: what cells are compared with, see above; None for "rest" with `off="input"`, "zero" with "gates".
        dt: times between steps of the input.
        floor: curves are fitted down to that share of the start; None for 100 times the precision of the model.
    """
    if off not in ("input", "gates"):
        raise ValueError(f"expected off to be 'input' or 'gates', got {off!r}")
    if against not in ("rest", "zero", None):
        raise ValueError(f"expected against to be 'rest' or 'zero', got {against!r}")
    if steps < 1:
        raise ValueError(f"expected at least one step of silence, got {steps}")
    inside = opened(model)
    _expect(inside, off)
    against = against or ("rest" if off == "input" else "zero")
    heard = inside.hear(input, dt)
    with inside.measuring():
        traces = _traces(inside, heard, steps, off)
        if against == "rest":
            still = _traces(inside, _silence_like(heard), steps, off)
            eps = torch.finfo(heard.vectors.dtype).eps
            traces = [_distance(one, other, eps) for one, other in zip(traces, still, strict=True)]
    if floor is None:
        # Forget values in float64 shrink a cell exactly; a difference of cells is as good as they are.
        exact = off == "gates" and against == "zero"
        floor = DIGITS * torch.finfo(torch.float64 if exact else heard.vectors.dtype).eps
    n = numpy.arange(steps + 1)
    layers = [_layer(name, trace, n, floor) for name, trace in zip(inside.names, traces, strict=True)]
    return FreeDecay(off=off, against=against, steps=n, sequences=heard.vectors.shape[1], layers=layers)


def _silence_like(heard: Heard) -> Heard:
    """Where all sequences have the same steps, silence is the same for all: one is enough."""
    if heard.lengths is None and heard.dt is None:
        return Heard(torch.zeros_like(heard.vectors[:, :1]))
    return heard.silenced()


def _distance(trace: Tensor, rest: Tensor, eps: float) -> Tensor:
    """The difference of two traces, zero at the switch for units whose cells are the same but for rounding."""
    difference = trace - rest
    sizes = torch.maximum(trace[0].abs().mean(0), rest[0].abs().mean(0))  # (H,)
    same = difference[0].abs().mean(0) <= ROUNDING * eps * sizes.max()
    difference[0] = difference[0].masked_fill(same, 0.0)
    return difference


def _traces(inside: Opened, heard: Heard, steps: int, off: Off) -> list[Tensor]:
    """Cells from the switch on, `(N + 1, B, H)` for every place."""
    for _, _, state in inside.watched(heard):  # noqa: B007  the last state is wanted
        pass
    if off == "gates":
        pairs = zip(inside.places, inside.states(state), strict=True)
        return [_alone(layer, place, own, steps) for (layer, place), own in pairs]
    return _in_silence(inside, heard, state, steps)


def _in_silence(inside: Opened, heard: Heard, state: State, steps: int) -> list[Tensor]:
    cells = [[_cell(own).unsqueeze(0)] for own in inside.states(state)]
    for start in range(0, steps, STEPS):
        silence = heard.vectors.new_zeros(min(STEPS, steps - start), *heard.vectors.shape[1:])
        records, state = inside.watch(Heard(silence), state)
        for kept, record in zip(cells, records, strict=True):
            kept.append(record["cell"])
    return [torch.cat(kept) for kept in cells]


def _alone(layer: Recurrent, place: Place, state: dict[str, Tensor], steps: int) -> Tensor:
    """Cells of a place whose gates see their biases alone, float64."""
    gate = layer.gate
    cell = _cell(state).double()
    pre = tuple(bias.expand_as(cell) for bias in layer.forget_biases()[layer.places.index(place)])
    carried = tuple(state[name].double() for name in gate.carries)
    weights = {name: getattr(layer, name + place.suffix).double() for name in gate.per_unit}
    cells = [cell]
    for _ in range(steps):
        forget, _, carried, _ = gate(pre, carried, weights, None)
        cells.append(forget * cells[-1])
    return torch.stack(cells)


def _cell(state: dict[str, Tensor]) -> Tensor:
    """A GRU's hidden values are its cells."""
    return state.get("cell", state["hidden"])


def _layer(name: str, trace: Tensor, n: Integers, floor: float) -> LayerDecay:
    sizes = numbers(trace.double().abs().mean(1))  # (N + 1, H)
    start = sizes[0]
    remaining = numpy.divide(sizes, start, out=numpy.full_like(sizes, numpy.nan), where=start > 0)
    total = sizes.sum(1)
    mean = total / total[0] if total[0] > 0 else numpy.full_like(total, numpy.nan)
    some = numpy.unique(numpy.geomspace(1, len(n), FITTED).round().astype(numpy.int64)) - 1
    return LayerDecay(
        name=name,
        start=start,
        remaining=remaining,
        mean=mean,
        fits=fit_decay(n[some], remaining[some], floor=floor),
        mean_fit=fit_decay(n[some], mean[some], floor=floor),
    )


def _expect(inside: Opened, off: Off) -> None:
    for layer in inside.layers:
        if layer.bidirectional:
            raise ValueError("expected a model that runs in one direction, got one for which the end comes first")
        if not isinstance(layer.cell, GatedCell):
            raise ValueError(f"expected layers with cells, got {type(layer).__name__}, which has none")
        if off == "gates" and isinstance(layer.cell, PhasedLSTMCell):
            raise ValueError("expected off='input' with a PhasedLSTM, whose units sleep whatever their gates say")
