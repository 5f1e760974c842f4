"""What a report shows of a sweep: tables over values, and a picture of one or two of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..experiments import results
from ..experiments.results import Outcome
from ..experiments.schema import Experiment
from ..report.figure import Axis, Figure, Heat, Panel, Series
from ..report.section import Section
from .folder import Sweep
from .grid import Unit
from .tables import over_values, scores

SPREAD = 20
"""The largest over the smallest value from which on an axis is logarithmic."""
Found = dict[tuple[str, tuple[str, ...]], list[Outcome]]
"""What came out, by model and values."""


def sections(sweep: Sweep) -> list[Section]:
    """A section for every experiment that was run at several points."""
    made = []
    for id in sweep.grid.ids:
        for preset in sweep.grid.presets:
            own = [unit for unit in sweep.units if (unit.id, unit.preset) == (id, preset)]
            points = list(dict.fromkeys(unit.sets for unit in own))
            if len(points) > 1 and own[0].model:
                made.append(section(sweep, own, points))
    return made


def section(sweep: Sweep, own: Sequence[Unit], points: Sequence[tuple[str, ...]]) -> Section:
    """One experiment over all values."""
    experiment = own[0].experiment
    models = list(dict.fromkeys(unit.model for unit in own))
    found: Found = {}
    for sets in points:
        at = next(unit for unit in own if unit.sets == sets)
        found |= {(model, sets): runs for model, runs in results.outcomes(sweep.out(at), at.experiment).items()}
    paths = list(sweep.grid.set)
    figure = picture(experiment, models, paths, points, found)
    failures = [f"{unit} failed: {reason}." for unit in own if (reason := sweep.failure(unit)) is not None]
    return Section(
        id=experiment.id,
        preset=experiment.preset,
        title=f"{experiment.title}, over {', '.join(paths)}",
        place=sweep.folder.name,
        models=models,
        done=sum(len(runs) for runs in found.values()),
        planned=sum(len(unit.seeds) for unit in own),
        tables=[over_values(sweep, own, points)],
        figures=[] if figure is None else [figure],
        facts=[
            ("grid", "; ".join(f"{path}: {', '.join(map(str, values))}" for path, values in sweep.grid.set.items()))
        ],
        notes=failures,
    )


def picture(
    experiment: Experiment, models: Sequence[str], paths: Sequence[str], points: Sequence[tuple[str, ...]], found: Found
) -> Figure | None:
    """Lines over one value, or a map over two for every model; None for more, or where nothing has ended."""
    if len(paths) > 2 or not found:
        return None
    report = experiment.report
    title = f"{report.split} {report.score}" + (f" ({report.unit})" if report.unit else "")
    values = [list(dict.fromkeys(word.partition("=")[2] for word in places)) for places in zip(*points, strict=True)]
    means = {key: mean(runs, report.scale) for key, runs in found.items()}
    if len(paths) == 1:
        panels = [lines(models, paths[0], values[0], title, found, report.scale)]
    else:
        panels = [heat(model, paths, values, title, means) for model in models]
    return Figure(
        f"{experiment.id}#sweep",
        f"{experiment.title}, over {' and '.join(paths)}",
        panels,
        "",
        note="Mean over seeds that did not fail" + (", with one standard deviation." if len(paths) == 1 else "."),
    )


def lines(models: Sequence[str], path: str, values: Sequence[str], title: str, found: Found, scale: float) -> Panel:
    """A line for every model."""
    axis, places = axis_of(path, values)
    series = []
    for model in models:
        x, y, low, high = [], [], [], []
        for place, value in zip(places, values, strict=True):
            good = scores(found.get((model, (f"{path}={value}",)), []), scale)
            if good:
                middle, spread = statistics.fmean(good), statistics.stdev(good) if len(good) > 1 else 0.0
                x.append(place)
                y.append(middle)
                low.append(middle - spread)
                high.append(middle + spread)
        series.append(Series(model, x, y, low, high, mark="line and points"))
    return Panel("", axis, Axis(title), series)


def heat(
    model: str,
    paths: Sequence[str],
    values: Sequence[Sequence[str]],
    title: str,
    means: dict[tuple[str, tuple[str, ...]], float],
) -> Panel:
    """A map of one model: the first path from top to bottom, the second from left to right."""
    down, across = paths
    rows = [
        [means.get((model, (f"{down}={one}", f"{across}={other}")), math.nan) for other in values[1]]
        for one in values[0]
    ]
    return Panel(model, Axis(across), Axis(down), heat=Heat(rows, title, rows=values[0], columns=values[1]))


def mean(runs: Sequence[Outcome], scale: float) -> float:
    """Of runs that have not failed."""
    good = scores(runs, scale)
    return statistics.fmean(good) if good else math.nan


def axis_of(path: str, values: Sequence[str]) -> tuple[Axis, list[float]]:
    """An axis for values, and where each is on it: numbers where they are, words side by side."""
    try:
        places = [float(value) for value in values]
    except ValueError:
        places = [float(number) for number in range(len(values))]
        return Axis(path, ticks=list(zip(places, values, strict=True))), places
    return Axis(path, log=min(places) > 0 and max(places) / min(places) >= SPREAD), places
