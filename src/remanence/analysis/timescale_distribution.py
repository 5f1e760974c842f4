"""Distribution of timescales: from biases, from forget values on an input, and exponents of power laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy
from torch import Tensor

from .. import timescales
from .arrays import Integers, Numbers, numbers
from .forget_values import Recorded
from .opened import AnyInput, AnyModel, exponents_of, opened
from .plain import Result

PERCENTILES = (5, 25, 50, 75, 95)
BINS = 24


@dataclass(frozen=True, eq=False)
class LayerTimescales(Result):
    """Timescales of the H units of one layer and direction, in steps."""

    name: str
    """l0, l0_reverse, l1, ..."""
    gate: str
    """Name of the gate."""
    from_biases: Numbers | None
    """-1/log phi(b_f), the timescale of a unit without input, `(H,)`; None for a power law, which has none."""
    from_gates: Numbers | None
    """-1/log of the mean forget value on the input, `(H,)`; None without an input."""
    exponents: Numbers | None
    """p of a power law, `(H,)`; None for other gates."""
    at: dict[str, Numbers]
    """`percentiles` of `from_biases`, `from_gates` and `exponents` by name, as far as they exist."""
    counts: dict[str, Integers]
    """Units in every bin, for `from_biases` and `from_gates`. Values beyond `edges` are in no bin."""


@dataclass(frozen=True, eq=False)
class TimescaleDistribution(Result):
    """Timescales of all units of a model, layer by layer."""

    percentiles: Numbers
    """The percentiles in `LayerTimescales.at`."""
    edges: Numbers
    """Edges of bins of equal width on a logarithmic axis, the same for all layers."""
    layers: list[LayerTimescales]
    """One entry per layer and direction."""

    def together(self, kind: Literal["from_biases", "from_gates"]) -> Numbers:
        """The timescales of all layers in one array, as input of `timescale_fits`."""
        found = [getattr(layer, kind) for layer in self.layers]
        return numpy.concatenate([values for values in found if values is not None] or [numpy.zeros(0)])


def timescale_distribution(
    model: AnyModel,
    input: AnyInput | None = None,
    *,
    mean: Literal["arithmetic", "geometric"] = "arithmetic",
    percentiles: Sequence[float] = PERCENTILES,
    bins: int = BINS,
    dt: Tensor | None = None,
) -> TimescaleDistribution:
    """Timescales from biases and, if there is an input, from forget values.

    Args:
        model: a layer, a `SequenceModel`, a `LanguageModel`, or torch's LSTM or GRU.
        input: an input of the model, a batch of a task, or a text, read from zero state.
        mean: kind of mean of the forget values, see `remanence.timescales.estimate`.
        percentiles: percentiles to compute.
        bins: number of bins between the shortest and the longest timescale.
        dt: time between steps of the input.
    """
    if bins < 1:
        raise ValueError(f"expected at least one bin, got {bins}")
    if any(not 0 <= part <= 100 for part in percentiles):
        raise ValueError(f"expected percentiles from 0 to 100, got {list(percentiles)}")
    inside = opened(model)
    biases = inside.timescales()
    gates: Sequence[Numbers | None] = [None] * len(biases)
    if input is not None:
        drive = inside.layer_input(input, dt)
        with inside.measuring():
            pieces: Any = ((records, None) for _, records, _ in inside.watched(drive))
            found = timescales.estimate(Recorded(inside.layers[0], drive.lengths), pieces, mean=mean)
        gates = [numbers(own) for own in found]
    edges = _edges([values for values in (*biases, *gates) if values is not None], bins)
    layers = []
    for (layer, place), name, bias, gate in zip(inside.places, inside.names, biases, gates, strict=True):
        p = exponents_of(layer, place)
        kinds = {"from_biases": bias, "from_gates": gate}
        own = {kind: values for kind, values in kinds.items() if values is not None}
        powers = None if p is None else numbers(p)
        every = own if powers is None else own | {"exponents": powers}
        layers.append(
            LayerTimescales(
                name=name,
                gate=layer.gate.name,
                from_biases=bias,
                from_gates=gate,
                exponents=powers,
                at={kind: percentiles_of(values, percentiles) for kind, values in every.items()},
                counts={kind: numpy.histogram(values, edges)[0] for kind, values in own.items()},
            )
        )
    return TimescaleDistribution(percentiles=numbers(list(percentiles)), edges=edges, layers=layers)


def percentiles_of(values: Numbers, percentiles: Sequence[float]) -> Numbers:
    """Percentiles without interpolation, because there is none between a finite and an infinite value."""
    places = (len(values) - 1) * numbers(list(percentiles)) / 100
    found: Numbers = numpy.sort(values)[places.round().astype(numpy.int64)]
    return found


def _edges(found: Sequence[Numbers], bins: int) -> Numbers:
    """Edges from the shortest to the longest timescale that is neither zero nor infinite."""
    values = numpy.concatenate(found) if found else numpy.ones(1)
    values = values[numpy.isfinite(values) & (values > 0)]
    low, high = (values.min(), values.max()) if len(values) else (1.0, 1.0)
    if low == high:
        low, high = low / 2, high * 2
    edges: Numbers = numpy.geomspace(low, high, bins + 1)
    edges[0], edges[-1] = low, high  # rounding must not move the ends
    return edges
