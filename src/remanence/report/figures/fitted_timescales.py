"""Timescales that a language model has learned, and distributions fitted to them (multi-timescale paper, figure 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..figure import Axis, Figure, Panel, Series
from ..files import ResultFiles
from .pieces import each_model, few, figure

POINTS = 400
"""Units drawn: all of 2700 make no other picture."""
FAMILIES = (("inverse_gamma", "inverse gamma", "alpha"), ("gaussian", "Gaussian", "mu"))


def fitted_timescales(files: ResultFiles, statement: str) -> list[Figure]:
    """Sorted timescales with both fits, and how well each distribution fits, of the first seed of every model."""
    panels = []
    for need, model, (first, *_) in each_model(files.expect_found()):
        panels += [sorted_units(f"{need}, {model}", first), statistics(f"{need}, {model}", first)]
    note = "Dashes: what as many units would have under the best fit of each family."
    return [figure(files, statement, panels, note=note)]


def sorted_units(title: str, found: Mapping[str, Any]) -> Panel:
    """Timescales of all units, long to short."""
    shown = few(len(found["timescales"]), POINTS)
    units = [number + 1 for number in shown]
    series = [Series("units of the model", units, [found["timescales"][at] for at in shown])]
    for key, name, _ in FAMILIES:
        fit = found[key]
        # A Gaussian goes below zero, which has no logarithm: a gap.
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


def statistics(title: str, found: Mapping[str, Any]) -> Panel:
    """The Kolmogorov-Smirnov statistic over the parameter of each family."""
    key, nearer = min(((key, name) for key, name, _ in FAMILIES), key=lambda family: found[family[0]]["statistic"])
    return Panel(
        title=title,
        x=Axis("alpha of the inverse gamma, mu of the Gaussian"),
        y=Axis("Kolmogorov-Smirnov statistic", low=0, high=1),
        series=[Series(name, found[key]["grid"], found[key]["statistics"]) for key, name, _ in FAMILIES],
        note=f"Nearer: {nearer}, {found[key]['statistic']:.3f}.",
    )
