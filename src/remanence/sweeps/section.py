"""The report section of a sweep: tables over values, and a figure over one or two of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial

from ..experiments.results import Outcome, reaching_heading
from ..experiments.schema import Experiment
from ..report.figure import Axis, Figure, Heat, Panel, Series
from ..report.section import Section
from .folder import Sweep
from .tables import Found, Swept, every_swept, over_values, scores

SPREAD = 20
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


def sections(sweep: Sweep) -> list[Section]:
    """A section for every experiment that was run at several points."""
    return [section(sweep, swept) for swept in every_swept(sweep) if len(swept.points) > 1]


def section(sweep: Sweep, swept: Swept) -> Section:
    """One experiment over all values."""
    experiment, models, found = swept.experiment, swept.models, swept.found
    paths = list(sweep.grid.set)
    figure = picture(experiment, models, paths, list(swept.points), found)
    failures = [f"{unit} failed: {reason}." for unit in swept.units if (reason := sweep.failure(unit)) is not None]
    return Section(
        id=experiment.id,
        preset=experiment.preset,
        title=f"{experiment.title}, over {', '.join(paths)}",
        place=sweep.folder.name,
        models=models,
        done=sum(len(runs) for runs in found.values()),
        planned=sum(len(unit.seeds) for unit in swept.units),
        tables=[over_values(swept)],
        figures=[] if figure is None else [figure],
        facts=[
            ("grid", "; ".join(f"{path}: {', '.join(map(str, values))}" for path, values in sweep.grid.set.items()))
        ],
        notes=failures,
    )


def picture(
    experiment: Experiment, models: Sequence[str], paths: Sequence[str], points: Sequence[tuple[str, ...]], found: Found
) -> Figure | None:
    """Lines over one value, or a heat map per model over two; None for more values, or without results."""
    if len(paths) > 2 or not found:
        return None
    report = experiment.report
    title = f"{report.split} {report.score}" + (f" ({report.unit})" if report.unit else "")
    values = [list(dict.fromkeys(word.partition("=")[2] for word in places)) for places in zip(*points, strict=True)]
    means = {key: mean(runs, report.scale) for key, runs in found.items()}
    if len(paths) == 1:
        panels = [lines(models, paths[0], values[0], title, found, partial(scores, scale=report.scale))]
        if report.reach is not None:
            panels.append(lines(models, paths[0], values[0], reaching_heading(report), found, updates_to_reach))
    else:
        panels = [heat(model, paths, values, title, means) for model in models]
    return Figure(
        f"{experiment.id}#sweep",
        f"{experiment.title}, over {' and '.join(paths)}",
        panels,
        "",
        note="Mean over seeds that did not fail" + (", with one standard deviation." if len(paths) == 1 else "."),
    )


def lines(
    models: Sequence[str],
    path: str,
    values: Sequence[str],
    title: str,
    found: Found,
    numbers: Callable[[Sequence[Outcome]], Sequence[float]],
) -> Panel:
    """One line per model, from one value per run."""
    axis, places = axis_of(path, values)
    series = []
    for model in models:
        x, y, low, high = [], [], [], []
        for place, value in zip(places, values, strict=True):
            good = numbers(found.get((model, (f"{path}={value}",)), []))
            if good:
                middle, spread = statistics.fmean(good), statistics.stdev(good) if len(good) > 1 else 0.0
                x.append(place)
                y.append(middle)
                low.append(middle - spread)
                high.append(middle + spread)
        if x:
            series.append(Series(model, x, y, low, high, mark="line and points"))
    return Panel("", axis, Axis(title), series)


def updates_to_reach(runs: Sequence[Outcome]) -> list[int]:
    """Updates of the runs that reached the goal."""
    return [run.updates_to_reach for run in runs if run.updates_to_reach is not None]


def heat(
    model: str,
    paths: Sequence[str],
    values: Sequence[Sequence[str]],
    title: str,
    means: dict[tuple[str, tuple[str, ...]], float],
) -> Panel:
    """The heat map of one model: first path from top to bottom, second from left to right."""
    down, across = paths
    rows = [
        [means.get((model, (f"{down}={one}", f"{across}={other}")), math.nan) for other in values[1]]
        for one in values[0]
    ]
    return Panel(model, Axis(across), Axis(down), heat=Heat(rows, title, rows=values[0], columns=values[1]))


def mean(runs: Sequence[Outcome], scale: float) -> float:
    """Mean score of the runs that did not fail; NaN without any."""
    good = scores(runs, scale)
    return statistics.fmean(good) if good else math.nan


def axis_of(path: str, values: Sequence[str]) -> tuple[Axis, list[float]]:
    """An axis and the positions of values on it: numbers at their value, text at equal distances."""
    try:
        places = [float(value) for value in values]
    except ValueError:
        places = [float(number) for number in range(len(values))]
        return Axis(path, ticks=list(zip(places, values, strict=True))), places
    return Axis(path, log=min(places) > 0 and max(places) / min(places) >= SPREAD), places
