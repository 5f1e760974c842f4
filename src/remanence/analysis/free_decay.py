"""The remanence curve: drive a trained model, switch the input off, and record what stays in its cells.

"Off" can mean two things:

** `off="input"`: the input vectors of the first layer are zero from then on. Everything else continues: hidden values
  feed back, biases act, cells are written to. This is how the trained network behaves without input.
* `off="gates"`: the free-input regime in which the papers define timescales. The gates of every unit depend only on its
  biases (no input, no hidden values), and nothing is written: c_n = f c_{n-1}. An exponential gate then decays with the
  timescale of its bias, and a power-law unit according to its age.

Without input a network comes to rest at cells that its biases write, which are no memory of the input.
`against="rest"` therefore records the distance to the cells of the same model with zero input from the start;
`against="zero"` records the cells themselves. A unit whose distance is within rounding error when the input is switched
off held nothing.
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
from .opened import STEPS, AnyInput, AnyModel, LayerInput, Opened, State, opened
from .plain import Result

Off = Literal["input", "gates"]
Against = Literal["rest", "zero"]
FITTED = 60
"""Curves are fitted at about this many steps, log-spaced, so that early and late steps count equally."""
DIGITS = 100
"""A curve is fitted down to this many times the machine epsilon of the model's dtype."""
ROUNDING = 8
"""Cells of two runs on the same input differ by up to two machine epsilons, relative to the largest cell of their
layer: units read each other, so a small cell has the same absolute error as a large one. Four times as much still
counts as rounding."""


@dataclass(frozen=True, eq=False)
class LayerDecay(Result):
    """Decay of the H cells of one layer and direction over n = 0 ... N steps without input."""

    name: str
    """l0, l1, ..."""
    start: Numbers
    """Mean absolute value over sequences when the input is switched off, `(H,)`; 0 if it is only rounding."""
    remaining: Numbers
    """The same n steps later, relative to `start`, `(N + 1, H)`; NaN for a unit that held nothing."""
    mean: Numbers
    """All units together, `(N + 1,)`: the sum of the absolute values, relative to the start."""
    fits: DecayFits
    """Fits of every unit, `(H,)`."""
    mean_fit: DecayFits
    """Fit of the mean, `(1,)`."""


@dataclass(frozen=True, eq=False)
class FreeDecay(Result):
    """Free decay of all layers of a model."""

    off: str
    """What was switched off: "input" or "gates"."""
    against: str
    """What cells are compared with: "rest" or "zero"."""
    steps: Integers
    """0 ... N."""
    sequences: int
    """Number of sequences."""
    layers: list[LayerDecay]
    """One entry per layer and direction."""


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
    """Drive a model with real input, switch the input off and record the cells.

    Args:
        model: a layer, a `SequenceModel`, a `LanguageModel`, or torch's LSTM or GRU.
        input: input before the switch: an input of the model, a batch of a task (every sequence is run to its end), or
            a text.
        steps: number of steps without input N, of unit length.
        off: "input" or "gates", see the module docstring.
        against: "rest" or "zero", see the module docstring; None for "rest" with `off="input"`, "zero" with "gates".
        dt: time between steps of the input.
        floor: curves are fitted down to this fraction of the start; None for 100 times the model's machine epsilon.
    """
    if off not in ("input", "gates"):
        raise ValueError(f"expected off to be 'input' or 'gates', got {off!r}")
    if against not in ("rest", "zero", None):
        raise ValueError(f"expected against to be 'rest' or 'zero', got {against!r}")
    if steps < 1:
        raise ValueError(f"expected at least one step without input, got {steps}")
    inside = opened(model)
    _expect(inside, off)
    against = against or ("rest" if off == "input" else "zero")
    drive = inside.layer_input(input, dt)
    with inside.measuring():
        traces = _traces(inside, drive, steps, off)
        if against == "rest":
            still = _traces(inside, _zero_input_like(drive), steps, off)
            eps = torch.finfo(drive.vectors.dtype).eps
            traces = [_distance(one, other, eps) for one, other in zip(traces, still, strict=True)]
    if floor is None:
        # Float64 forget values scale a cell exactly; a difference of cells is only as precise as the cells.
        exact = off == "gates" and against == "zero"
        floor = DIGITS * torch.finfo(torch.float64 if exact else drive.vectors.dtype).eps
    n = numpy.arange(steps + 1)
    layers = [_layer(name, trace, n, floor) for name, trace in zip(inside.names, traces, strict=True)]
    return FreeDecay(off=off, against=against, steps=n, sequences=drive.vectors.shape[1], layers=layers)


def _zero_input_like(drive: LayerInput) -> LayerInput:
    """Zero input. If all sequences have the same steps, one sequence is enough."""
    if drive.lengths is None and drive.dt is None:
        return LayerInput(torch.zeros_like(drive.vectors[:, :1]))
    return drive.without_input()


def _distance(trace: Tensor, rest: Tensor, eps: float) -> Tensor:
    """The difference of two traces, zero at the switch for units whose cells are equal up to rounding."""
    difference = trace - rest
    sizes = torch.maximum(trace[0].abs().mean(0), rest[0].abs().mean(0))  # (H,)
    same = difference[0].abs().mean(0) <= ROUNDING * eps * sizes.max()
    difference[0] = difference[0].masked_fill(same, 0.0)
    return difference


def _traces(inside: Opened, drive: LayerInput, steps: int, off: Off) -> list[Tensor]:
    """Cells from the switch on, `(N + 1, B, H)` for every place."""
    for _, _, state in inside.watched(drive):  # noqa: B007  only the last state is used
        pass
    if off == "gates":
        pairs = zip(inside.places, inside.states(state), strict=True)
        return [_alone(layer, place, own, steps) for (layer, place), own in pairs]
    return _without_input(inside, drive, state, steps)


def _without_input(inside: Opened, drive: LayerInput, state: State, steps: int) -> list[Tensor]:
    cells = [[_cell(own).unsqueeze(0)] for own in inside.states(state)]
    for start in range(0, steps, STEPS):
        silence = drive.vectors.new_zeros(min(STEPS, steps - start), *drive.vectors.shape[1:])
        records, state = inside.watch(LayerInput(silence), state)
        for kept, record in zip(cells, records, strict=True):
            kept.append(record["cell"])
    return [torch.cat(kept) for kept in cells]


def _alone(layer: Recurrent, place: Place, state: dict[str, Tensor], steps: int) -> Tensor:
    """Cells of a place whose gates depend only on their biases, float64."""
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
    """The cells of a state; for a GRU its hidden values."""
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
            raise ValueError("expected a unidirectional model, got a bidirectional one")
        if not isinstance(layer.cell, GatedCell):
            raise ValueError(f"expected layers with cells, got {type(layer).__name__}, which has none")
        if off == "gates" and isinstance(layer.cell, PhasedLSTMCell):
            raise ValueError("expected off='input' with a PhasedLSTM, whose phase closes units too, got off='gates'")
