"""The gates of a unit that receives no input and no hidden values, only its biases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch

from ..cells import GatedCell
from ..gates import PowerLaw
from ..nn.place import Place
from ..nn.recurrent import Recurrent
from .arrays import Numbers, numbers
from .opened import AnyModel, opened
from .plain import Result

GATES = ("forget", "input", "output", "reset", "refine", "candidate_reset")


@dataclass(frozen=True, eq=False)
class LayerAtRest(Result):
    """Gates of the H units of one layer and direction, `(H,)` each."""

    name: str
    """l0, l0_reverse, l1, ..."""
    gates: dict[str, Numbers]
    """Values from 0 to 1, by name, of the gates that the cell has: forget, input, output, reset, refine,
    candidate_reset."""
    ages: Numbers | None
    """For a power law, the age (1 - r) / r at which a unit with reset gate r comes to rest: up to that age it decays as
    a power law, after it exponentially. None for other gates."""


def gates_at_rest(model: AnyModel) -> list[LayerAtRest]:
    """Gates of all units from their biases alone, layer by layer.

    The forget value of a power-law unit is the one at its age at rest.

    Args:
        model: a layer, a `SequenceModel`, a `LanguageModel`, or torch's LSTM or GRU.
    """
    inside = opened(model)
    with inside.measuring():
        pairs = zip(inside.names, inside.places, strict=True)
        return [_at_rest(name, layer, place) for name, (layer, place) in pairs]


def _at_rest(name: str, layer: Recurrent, place: Place) -> LayerAtRest:
    layer.gate  # noqa: B018  raises for a layer without a gate
    cell = layer._cell_now()
    assert isinstance(cell, GatedCell)
    weights = {key: weight.double() for key, weight in layer._weights(place, torch.float64).items()}
    nothing = weights["weight_ih"].new_zeros(1, 1, weights["weight_ih"].shape[1])
    widths = cell.widths(layer.hidden_size, layer.output_size)
    state = {key: nothing.new_zeros(1, width) for key, width in widths.items()}
    projected = cell.project(nothing, weights)[0]
    seen = cell.step(projected, tuple(state.values()), weights, None).seen
    ages = None
    if isinstance(layer.gate, PowerLaw):
        # The fixed point of d = (1 - r)(d + 1); clamped, so that a unit that never resets has a forget value.
        kept = torch.sigmoid(-layer.forget_biases()[layer.places.index(place)][0])
        reset = seen["reset"]
        at_rest = (kept / reset).clamp(max=1e15)
        seen = cell.step(projected, tuple((state | {"age": at_rest}).values()), weights, None).seen | {"reset": reset}
        ages = numbers((kept / reset).squeeze(0))
    gates = {key: numbers(seen[key].squeeze(0)) for key in GATES if key in seen}
    if not _has_gate(layer, "output"):
        gates.pop("output")
    return LayerAtRest(name=name, gates={key: numpy.atleast_1d(values) for key, values in gates.items()}, ages=ages)


def _has_gate(layer: Recurrent, name: str) -> bool:
    """Whether the cell has this gate, rather than a constant in its records."""
    return isinstance(layer.cell, GatedCell) and name in layer.cell.blocks
