"""Tables of a sweep: the status of its units, and their results."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..experiments import results
from ..experiments.results import Outcome
from ..experiments.schema import Experiment
from ..table import Table, mean_and_std
from ..training.schedule import lower_is_better
from .folder import NAMES, State, Sweep
from .grid import Unit

BEST = "*"
Found = dict[tuple[str, tuple[str, ...]], list[Outcome]]
"""Outcomes by model and values."""


def status(sweep: Sweep) -> Table:
    """The status of every unit."""
    states = [(unit, sweep.state(unit)) for unit in sweep.units]
    counts = Counter(state.name for _, state in states)
    title = f"{sweep.folder}: " + ", ".join(f"{counts[name]} {name}" for name in NAMES)
    rows = [
        (str(unit), state.name, f"{100 * state.share:.0f} %", duration(state.left), note(state))
        for unit, state in states
    ]
    return Table(title, ("unit", "state", "done", "left", ""), rows, words=2, text=1)


def note(state: State) -> str:
    """Why it failed, or the process that works on it."""
    return state.reason or state.who


def duration(seconds: float | None) -> str:
    """A duration in human-readable form."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{rest} s"


def plain_status(sweep: Sweep) -> list[dict[str, Any]]:
    """The status of every unit as plain data."""
    found = []
    for unit in sweep.units:
        state = sweep.state(unit)
        known = {"unit": str(unit), "state": state.name, "share": round(state.share, 4), "left_s": state.left}
        found.append({**known, "who": state.who, "reason": state.reason})
    return found


class Swept(NamedTuple):
    """An experiment under one preset, at all points."""

    units: list[Unit]
    points: dict[tuple[str, ...], dict[str, list[Outcome]]]
    """Outcomes by values and model."""

    @property
    def experiment(self) -> Experiment:
        """The experiment at the first point."""
        return self.units[0].experiment

    @property
    def models(self) -> list[str]:
        """The models of the sweep."""
        return list(dict.fromkeys(unit.model for unit in self.units))

    @property
    def found(self) -> Found:
        """Outcomes by model and values."""
        return {(model, sets): runs for sets, models in self.points.items() for model, runs in models.items()}


def every_swept(sweep: Sweep) -> list[Swept]:
    """Every experiment that trains models, with the outcomes so far."""
    groups: dict[tuple[str, str], list[Unit]] = {}
    for unit in sweep.units:
        if unit.model:
            groups.setdefault((unit.id, unit.preset), []).append(unit)
    return [
        Swept(own, {unit.sets: results.outcomes(sweep.out(unit), unit.experiment) for unit in first_of_points(own)})
        for own in groups.values()
    ]


def first_of_points(own: Sequence[Unit]) -> list[Unit]:
    """The first unit of every point."""
    found: dict[tuple[str, ...], Unit] = {}
    for unit in own:
        found.setdefault(unit.sets, unit)
    return list(found.values())


def outcomes(sweep: Sweep) -> list[Table]:
    """A table for every experiment: with published numbers, or over values with the best one marked."""
    return [
        over_values(swept) if len(swept.points) > 1 else results.table(swept.experiment, *swept.points.values())
        for swept in every_swept(sweep)
    ]


def over_values(swept: Swept) -> Table:
    """Every model at every point; the best point of a model is marked."""
    experiment, points, found = swept.experiment, list(swept.points), swept.found
    report = experiment.report
    best = {model: best_point(experiment, model, found) for model in experiment.models}
    paths = [word.partition("=")[0] for word in points[0]]
    unit = f", {report.unit}" if report.unit else ""
    reach = () if report.reach is None else (results.reaching_heading(report),)
    rows = []
    for model in swept.models:
        for sets in points:
            runs = found.get((model, sets), [])
            updates = [run.updates_to_reach for run in runs if run.updates_to_reach is not None]
            rows.append(
                (
                    model,
                    *(word.partition("=")[2] for word in sets),
                    str(len(runs)),
                    str(sum(run.failed for run in runs)),
                    mean_and_std(scores(runs, report.scale), report.digits) + (BEST if best[model] == sets else ""),
                    *([] if report.reach is None else [results.reached(updates, len(runs))]),
                )
            )
    title = f"{experiment.id}, preset {experiment.preset}: {report.split} {report.score} over {', '.join(paths)}"
    notes = [f"{BEST} best value of a model; failed runs are counted but excluded from the mean."]
    headings = ("model", *paths, "seeds", "failed", f"{report.score}{unit}", *reach)
    return Table(title, headings, rows, words=1, notes=notes)


def scores(runs: Sequence[Outcome], scale: float) -> list[float]:
    """Scores of the runs that did not fail."""
    return [run.score * scale for run in runs if run.score is not None and not run.failed]


def best_point(experiment: Experiment, model: str, found: Found) -> tuple[str, ...] | None:
    """The best point of a model: fewest failures, then best mean."""
    sign = 1 if lower_is_better(experiment.models[model].task, experiment.report.score) else -1

    def rank(sets: tuple[str, ...]) -> tuple[float, float]:
        runs = found[model, sets]
        return sum(run.failed for run in runs) / len(runs), sign * statistics.fmean(scores(runs, 1.0))

    able = [sets for name, sets in found if name == model and scores(found[model, sets], 1.0)]
    return min(able, key=rank, default=None)


def plain_outcomes(sweep: Sweep) -> dict[str, Any]:
    """All results as plain data, by experiment, preset and point."""
    found: dict[str, Any] = {}
    for swept in every_swept(sweep):
        for unit in first_of_points(swept.units):
            place = found.setdefault(unit.id, {}).setdefault(unit.preset, {})
            place[unit.point] = {
                "set": dict(word.partition("=")[::2] for word in unit.sets),
                **results.summary(unit.experiment, swept.points[unit.sets]),
            }
    return found
