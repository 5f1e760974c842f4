"""Timescales of forget biases while a task is learned (fast-gate figure 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..figure import Axis, Figure, Panel, Series
from ..files import ResultFiles
from .pieces import figure


def growth(files: ResultFiles, statement: str) -> list[Figure]:
    """Mean over units, with the paper's band of a tenth of their standard deviation; and the median."""
    panels = []
    for need, models in files.expect_found().items():
        for words, kind in (("mean over units", "mean"), ("median unit", "50")):
            series = [one for name, seeds in models.items() for one in curves(name, list(seeds.values()), kind)]
            panels.append(
                Panel(
                    title=f"{need}, {words}",
                    x=Axis("updates", low=0),
                    y=Axis("timescale of the forget bias (steps)", log=True),
                    series=series,
                )
            )
    note = "Mean over seeds. Bands, of the means: a tenth of the standard deviation over units, as in the paper."
    return [figure(files, statement, panels, note=note)]


def curves(name: str, seeds: Sequence[Mapping[str, Any]], kind: str) -> list[Series]:
    """One model. Where a unit never forgets any more its timescale is infinite, and the mean has a gap."""
    updates = sorted(set.intersection(*(set(one["updates"]) for one in seeds)))
    rows = [dict(zip(one["updates"], part(one, kind), strict=True)) for one in seeds]
    mean = [over_seeds([row[at] for row in rows]) for at in updates]
    if kind != "mean":
        return [Series(name, updates, mean)]
    low, high = (
        [over_seeds([dict(zip(one["updates"], one[end], strict=True))[at] for one in seeds]) for at in updates]
        for end in ("low", "high")
    )
    return [Series(name, updates, mean, low, high)]


def part(found: Mapping[str, Any], kind: str) -> Sequence[float | None]:
    """The mean, or a percentile, at every update."""
    values: Sequence[float | None] = found["mean"] if kind == "mean" else found["percentiles"][kind]
    return values


def over_seeds(values: Sequence[float | None]) -> float:
    """The mean; a gap where one is not finite."""
    known = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return sum(known) / len(known) if len(known) == len(values) else math.nan
