"""Figures of timescales and forget values (fast-gate figure 5; multi-timescale paper, figures 1, 4 and 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..figure import Axis, Figure, Heat, Panel, Series
from ..files import ResultFiles
from .shared import each_model, few, figure, short

FITTED_POINTS = 400
"""Number of units to draw: all 2700 would look the same."""
ASSIGNED_POINTS = 600
FAMILIES = (("inverse_gamma", "inverse gamma", "alpha"), ("gaussian", "Gaussian", "mu"))
LABELS = 14
"""Number of word labels along a heat map."""
ROWS = 6


def growth(files: ResultFiles, statement: str) -> list[Figure]:
    """Timescales of the forget biases during training (fast-gate figure 5): mean over units, and the median unit.

    The band is a tenth of the standard deviation over units, as in the paper.
    """
    panels = []
    for need, models in files.expect_found().items():
        for words, kind in (("mean over units", "mean"), ("median unit", "50")):
            series = [one for name, seeds in models.items() for one in growth_curves(name, list(seeds.values()), kind)]
            panels.append(
                Panel(
                    title=f"{need}, {words}",
                    x=Axis("updates", low=0),
                    y=Axis("timescale of the forget bias (steps)", log=True),
                    series=series,
                )
            )
    note = "Mean over seeds. Bands: a tenth of the standard deviation over units, as in the paper."
    return [figure(files, statement, panels, note=note)]


def growth_curves(name: str, seeds: Sequence[Mapping[str, Any]], kind: str) -> list[Series]:
    """The curves of one model. A unit that never forgets has an infinite timescale, and the mean has a gap."""
    updates = sorted(set.intersection(*(set(one["updates"]) for one in seeds)))
    rows = [dict(zip(one["updates"], mean_or_percentile(one, kind), strict=True)) for one in seeds]
    mean = [over_seeds([row[at] for row in rows]) for at in updates]
    if kind != "mean":
        return [Series(name, updates, mean)]
    low, high = (
        [over_seeds([dict(zip(one["updates"], one[end], strict=True))[at] for one in seeds]) for at in updates]
        for end in ("low", "high")
    )
    return [Series(name, updates, mean, low, high)]


def mean_or_percentile(found: Mapping[str, Any], kind: str) -> Sequence[float | None]:
    """The mean, or a percentile, at every update."""
    values: Sequence[float | None] = found["mean"] if kind == "mean" else found["percentiles"][kind]
    return values


def over_seeds(values: Sequence[float | None]) -> float:
    """The mean; NaN (a gap) if a value is not finite."""
    known = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return sum(known) / len(known) if len(known) == len(values) else math.nan


def fitted_timescales(files: ResultFiles, statement: str) -> list[Figure]:
    """Sorted timescales with both fits, and the goodness of each fit, for the first seed of every model (figure 1)."""
    panels = []
    for need, model, (first, *_) in each_model(files.expect_found()):
        panels += [sorted_units(f"{need}, {model}", first), ks_statistics(f"{need}, {model}", first)]
    note = "Dashed: quantiles of the best fit of each family, for as many units."
    return [figure(files, statement, panels, note=note)]


def sorted_units(title: str, found: Mapping[str, Any]) -> Panel:
    """Timescales of all units, long to short."""
    shown = few(len(found["timescales"]), FITTED_POINTS)
    units = [number + 1 for number in shown]
    series = [Series("units of the model", units, [found["timescales"][at] for at in shown])]
    for key, name, _ in FAMILIES:
        fit = found[key]
        # A Gaussian has negative values, which have no logarithm: draw a gap.
        y = [value if value is not None and value > 0 else float("nan") for value in fit["quantiles"]]
        series.append(Series(name, units, [y[at] for at in shown], dashed=True))
    best = ", ".join(f"{name} {parameter} = {found[key]['best']:.2f}" for key, name, parameter in FAMILIES)
    return Panel(
        title=title,
        x=Axis("units, long to short"),
        y=Axis("timescale (words)", log=True),
        series=series,
        note=f"Best: {best}. {100 * found['below_10']:.1f} % of units are below 10.",
    )


def ks_statistics(title: str, found: Mapping[str, Any]) -> Panel:
    """The Kolmogorov-Smirnov statistic over the parameter of each family."""
    key, nearer = min(((key, name) for key, name, _ in FAMILIES), key=lambda family: found[family[0]]["statistic"])
    return Panel(
        title=title,
        x=Axis("alpha of the inverse gamma, mu of the Gaussian"),
        y=Axis("Kolmogorov-Smirnov statistic", low=0, high=1),
        series=[Series(name, found[key]["grid"], found[key]["statistics"]) for key, name, _ in FAMILIES],
        note=f"Better fit: {nearer}, {found[key]['statistic']:.3f}.",
    )


def assigned(files: ResultFiles, statement: str) -> list[Figure]:
    """Assigned and estimated timescales of the units, for the first seed of every model (figure 4)."""
    panels = []
    for need, model, (first, *_) in each_model(files.expect_found()):
        shown = few(len(first["assigned"]), ASSIGNED_POINTS)
        units = [at + 1 for at in shown]
        panels.append(
            Panel(
                title=f"{need}, {model}: layer {first['layer']}",
                x=Axis("units in the order of assigned timescales"),
                y=Axis("timescale (words)", log=True),
                series=[
                    Series("estimated", units, [first["estimated"][at] for at in shown], mark="points"),
                    Series("assigned", units, [first["assigned"][at] for at in shown], dashed=True),
                ],
                note=f"Rank correlation {correlation(first['spearman'])}, "
                f"correlation of logarithms {correlation(first['log_pearson'])}.",
            )
        )
    return [figure(files, statement, panels)]


def correlation(value: float | None) -> str:
    """Format a correlation."""
    return "unknown" if value is None else f"{value:.3f}"


def forget_maps(files: ResultFiles, statement: str) -> list[Figure]:
    """Forget values over a passage of text: one heat map per layer of every model (figure 5)."""
    panels = [
        heat_map(f"{need}, {model}: layer {number}", found["words"], layer)
        for need, models in files.expect_found().items()
        for model, found in models.items()
        for number, layer in enumerate(found["layers"], 1)
    ]
    note = "Rows are groups of units, longest memory on top; words are read from left to right."
    return [figure(files, statement, panels, columns=3, note=note)]


def heat_map(title: str, words: Sequence[str], layer: Mapping[str, Any]) -> Panel:
    """One layer; rows are labelled with timescales if these were assigned."""
    shown = set(few(len(words), LABELS))
    values, assigned = layer["values"], layer["assigned"]
    labelled = set(few(len(values), ROWS))
    counted = [sum(layer["units"][:at]) for at in range(len(values))]
    rows = [
        "" if at not in labelled else str(counted[at] + 1) if assigned is None else short(assigned[at])
        for at in range(len(values))
    ]
    return Panel(
        title=title,
        x=Axis("words"),
        y=Axis("units by mean forget value" if assigned is None else "mean assigned timescale (words)"),
        heat=Heat(
            values=values,
            name="forget value",
            low=0,
            high=1,
            rows=rows,
            columns=[word if at in shown else "" for at, word in enumerate(words)],
        ),
    )
