"""Groups of units of a layer of a language model, by timescale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

from .. import timescales
from ..models.language import LanguageModel
from ..nn.recurrent import Recurrent
from .arrays import Integers, Numbers, numbers
from .plain import Result


@dataclass(frozen=True, eq=False)
class Groups(Result):
    """G groups of units, from the longest timescales to the shortest."""

    units: list[Integers]
    """The units of every group, longest timescale first."""
    means: Numbers
    """Mean timescale of every group, `(G,)`."""
    longest: Numbers
    """Longest timescale of every group, `(G,)`; the authors' code labels groups by it."""


def groups_of_units(timescales: Any, size: int) -> Groups:
    """Sort units by timescale and group them; the last group may be smaller.

    Units with assigned inverse gamma timescales are already sorted, so their groups are consecutive units.

    Args:
        timescales: `(H,)`.
        size: units per group.
    """
    values = numbers(timescales)
    if values.ndim != 1 or not len(values) or numpy.isnan(values).any():
        raise ValueError(f"expected one timescale per unit, got shape {values.shape}")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"expected groups of at least one unit, got {size!r}")
    order = numpy.argsort(-values, kind="stable").astype(numpy.int64)
    units = [order[start : start + size] for start in range(0, len(order), size)]
    return Groups(
        units=units,
        means=numpy.array([values[part].mean() for part in units]),
        longest=numpy.array([values[part].max() for part in units]),
    )


def numbered_layer(model: LanguageModel, number: int) -> Recurrent:
    """A recurrent layer by its index, counted from zero at the input."""
    layers = [layer for layer in model.layers if isinstance(layer, Recurrent)]
    if not 0 <= number < len(layers):
        raise ValueError(f"expected a layer from 0 to {len(layers) - 1}, got {number}")
    return layers[number]


def timescales_of(layer: Recurrent, given: Any = None) -> Numbers:
    """Timescales of the units of a layer, `(H,)`: the given ones, or those of its biases."""
    values = numbers(timescales.of(layer)[0] if given is None else given)
    if values.shape != (layer.hidden_size,):
        raise ValueError(f"expected timescales of {layer.hidden_size} units, got shape {values.shape}")
    return values
