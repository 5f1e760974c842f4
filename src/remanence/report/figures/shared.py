"""Helpers that several figures share: data by need, model and seed, curves of all seeds, and means over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..figure import Figure, Numbers, Panel, Reference, Series
from ..files import ResultFiles, RunFiles

Rows = Sequence[Sequence[float | None]]
SEEDS = "Thick: mean over seeds. Thin: single seeds."
"""Note on the lines of `with_mean`."""


def figure(
    files: ResultFiles, statement: str, panels: Sequence[Panel], *, name: str = "", columns: int = 2, note: str = ""
) -> Figure:
    """A figure of an analysis; with a name if there are several."""
    if not panels:
        raise files.nothing()
    return Figure(
        id=f"{files.id}#{name}" if name else files.id,
        title=f"{files.title} ({files.place})",
        panels=panels,
        statement=statement,
        made_from=(f"{files.place}/result.json",),
        columns=columns,
        note=note,
    )


def each_model(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[tuple[str, str, list[Any]]]:
    """Iterate over need, model and the findings of all its seeds."""
    for need, models in found.items():
        for name, seeds in models.items():
            yield need, name, list(seeds.values())


def mean_rows(seeds: Sequence[Rows]) -> list[list[float]]:
    """Elementwise mean over seeds of matrices; NaN where a value is missing."""
    return [[mean(cell) for cell in zip(*rows, strict=True)] for rows in zip(*seeds, strict=True)]


def mean(values: Sequence[float | None]) -> float:
    """Mean; NaN if a value is missing or not finite."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else math.nan


def seeds_in_words(seeds: int) -> str:
    """A note if lines are means over several seeds."""
    return f"Means over {seeds} seeds." if seeds > 1 else ""


def few(count: int, most: int) -> list[int]:
    """At most `most` evenly spaced indices of `count`, including both ends."""
    if count <= most:
        return list(range(count))
    return sorted({round(number * (count - 1) / (most - 1)) for number in range(most)})


def short(number: float | None) -> str:
    """A timescale as a label: three digits, thousands with a K, two decimals below 1."""
    if number is None:
        return "∞"
    return f"{number / 1000:.3g}K" if number >= 1000 else f"{number:.3g}" if number >= 1 else f"{number:.2f}"


Curve = Mapping[Any, float]
"""A score by update or epoch."""


def with_mean(name: str, curves: Sequence[Curve], scale: float = 1.0, shade: float | None = None) -> list[Series]:
    """A thin line per seed and a thick line for their mean."""
    curves = [curve for curve in curves if curve]
    single = [
        Series(
            f"{name}, single seed",
            list(curve),
            [value * scale for value in curve.values()],
            like=name,
            faint=True,
            shade=shade,
        )
        for curve in curves
    ]
    mean = mean_curve(curves)
    if not mean:
        return []
    thick = Series(name, list(mean), [value * scale for value in mean.values()], shade=shade)
    return [*single, thick] if len(single) > 1 else [thick]


def mean_curve(curves: Sequence[Curve]) -> dict[float, float]:
    """Mean of curves from where all have started. A curve that ends earlier keeps its last value."""
    found = {}
    latest = [math.nan] * len(curves)
    for at in sorted({at for curve in curves for at in curve}):
        latest = [curve.get(at, last) for curve, last in zip(curves, latest, strict=True)]
        if not any(map(math.isnan, latest)):
            found[at] = statistics.fmean(latest)
    return found


def mean_and_band(rows: Sequence[Numbers]) -> tuple[list[float], list[float], list[float]]:
    """Mean, and mean minus and plus the sample standard deviation, of every column of percentages.

    The band is clipped to 0 and 100.
    """
    columns = list(zip(*rows, strict=True))
    means = [statistics.fmean(column) for column in columns]
    stds = [statistics.stdev(column) if len(column) > 1 else 0.0 for column in columns]
    pairs = list(zip(means, stds, strict=True))
    return means, [max(0.0, mean - std) for mean, std in pairs], [min(100.0, mean + std) for mean, std in pairs]


def guessing(runs: Mapping[str, Sequence[RunFiles]], score: str, scale: float = 1.0) -> list[Reference]:
    """Chance level of a score, if the task defines one."""
    levels = [run.reference(score) for group in runs.values() for run in group]
    known = [level for level in levels if level is not None]
    return [Reference(known[0] * scale, "guessing")] if known else []


def in_sight(level: float, series: Sequence[Series], log: bool = False) -> bool:
    """Whether a level is close enough to the curves to be drawn without squeezing them."""
    values = [value for one in series for value in one.y if math.isfinite(value) and (value > 0 or not log)]
    if not values or (log and level <= 0):
        return False
    low, high, at = (math.log(value) if log else value for value in (min(values), max(values), level))
    return max(low - at, at - high) <= high - low


def titled(score: str, unit: str = "") -> str:
    """The name of a score on an axis."""
    return f"{score.replace('_', ' ')} ({unit})" if unit else score.replace("_", " ")


def spread(count: int) -> list[float]:
    """Evenly spaced positions on a colour scale, from 0 to 1."""
    return [number / max(1, count - 1) for number in range(count)]
