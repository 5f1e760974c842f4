"""Growth of the timescales of a layer during training (fast-gate figure 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from .plain import Result

Numbers = NDArray[numpy.float64]

PERCENTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True, eq=False)
class TimescaleGrowth(Result):
    """Statistics of the timescales over all units, at every update with logged timescales, `(updates,)` each."""

    updates: NDArray[numpy.int64]
    """The updates."""
    units: int
    """Number of units."""
    mean: Numbers
    """Mean over units."""
    std: Numbers
    """Over units, sample standard deviation."""
    low: Numbers
    """mean - std / 10, the band of the paper's figure; never below zero."""
    high: Numbers
    """mean + std / 10."""
    geometric_mean: Numbers
    """Geometric mean over units."""
    percentiles: dict[str, Numbers]
    """By name: "5" to "95"."""
    infinite: NDArray[numpy.int64]
    """Units whose forget value is exactly one in float64. If there are any, mean and std are infinite."""


def timescale_growth(
    metrics: Iterable[Mapping[str, Any]],
    *,
    update: str = "update",
    timescales: str = "timescales",
    percentiles: Sequence[float] = PERCENTILES,
) -> TimescaleGrowth:
    """Growth of timescales from the metrics of a training run that logged them.

    Args:
        metrics: lines of metrics. Lines without timescales are skipped.
        update: key of the update number in a line.
        timescales: key of the timescales in a line: one value per unit, or lists of them for several layers. None and
            any spelling of infinity mean infinite.
        percentiles: percentiles over units to compute.
    """
    rows: dict[int, list[float]] = {}
    for line in metrics:
        if line.get(timescales) is not None:
            rows[int(line[update])] = _numbers(line[timescales])
    if not rows:
        raise ValueError(f"expected metrics with {timescales!r}, got none; train with watch_timescales to log them")
    if len({len(row) for row in rows.values()}) > 1:
        raise ValueError(f"expected timescales of the same units in all metrics, got {sorted(map(len, rows.values()))}")
    updates = sorted(rows)
    values = numpy.array([rows[number] for number in updates])
    if not (values > 0).all():  # a NaN makes it false
        raise ValueError(f"expected positive timescales, got {values[~(values > 0)][0]}")
    mean, std = _moments(values)
    with numpy.errstate(invalid="ignore"):  # infinity minus infinity
        low = numpy.fmax(mean - std / 10, 0)
    logs = numpy.log(values)
    return TimescaleGrowth(
        updates=numpy.array(updates),
        units=values.shape[1],
        mean=mean,
        std=std,
        low=low,
        high=mean + std / 10,
        geometric_mean=numpy.exp(logs.mean(1)),
        percentiles={f"{part:g}": numpy.exp(_percentile(logs, part)) for part in percentiles},
        infinite=numpy.isinf(values).sum(1),
    )


def _moments(values: Numbers) -> tuple[Numbers, Numbers]:
    """Mean and sample standard deviation over units, scaled by the largest because squares of 1e200 would overflow."""
    largest = values.max(1)
    endless = numpy.isinf(largest)
    scaled = numpy.where(endless[:, None], 1.0, values / numpy.where(endless, 1.0, largest)[:, None])
    std = scaled.std(1, ddof=1) if values.shape[1] > 1 else numpy.zeros(len(values))
    return largest * scaled.mean(1), numpy.where(endless, numpy.inf, numpy.where(endless, 1.0, largest) * std)


def _percentile(logs: Numbers, part: float) -> Numbers:
    """Percentile over units. Between a finite and an infinite value it is the finite one, not an interpolation."""
    ordered = numpy.sort(logs, 1)
    place = (logs.shape[1] - 1) * part / 100
    below, above = ordered[:, int(numpy.floor(place))], ordered[:, int(numpy.ceil(place))]
    weight = place - numpy.floor(place)
    reach = numpy.where(numpy.isinf(above), 0.0, above - numpy.where(numpy.isinf(above), 0.0, below))
    between: Numbers = below + weight * reach
    return between


def _numbers(value: Any) -> list[float]:
    if value is None:
        return [float("inf")]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, str | int | float):
        return [float(value)]
    return [number for part in value for number in _numbers(part)]
