"""What a sweep shows: how far its units are, and what came out of them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..experiments import results
from ..experiments.results import Outcome
from ..experiments.schema import Experiment
from ..table import Table, mean_and_std
from ..training.stopping import lower_is_better
from .folder import NAMES, State, Sweep
from .grid import Unit, point_folder

BEST = "*"


def status(sweep: Sweep) -> Table:
    """How far every unit is."""
    states = [(unit, sweep.state(unit)) for unit in sweep.units]
    counts = Counter(state.name for _, state in states)
    title = f"{sweep.folder}: " + ", ".join(f"{counts[name]} {name}" for name in NAMES)
    rows = [
        (str(unit), state.name, f"{100 * state.share:.0f} %", duration(state.left), note(state))
        for unit, state in states
    ]
    return Table(title, ("unit", "state", "done", "left", ""), rows, words=2, text=1)


def note(state: State) -> str:
    """Why it failed, or who works on it."""
    return state.reason or state.who


def duration(seconds: float | None) -> str:
    """Seconds for people."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{rest} s"


def plain_status(sweep: Sweep) -> list[dict[str, Any]]:
    """The same as plain data."""
    found = []
    for unit in sweep.units:
        state = sweep.state(unit)
        known = {"unit": str(unit), "state": state.name, "share": round(state.share, 4), "left_s": state.left}
        found.append({**known, "who": state.who, "reason": state.reason})
    return found


def outcomes(sweep: Sweep) -> list[Table]:
    """A table for every experiment: beside published numbers, or over values with the best marked."""
    tables = []
    for id in sweep.grid.ids:
        for preset in sweep.grid.presets:
            own = [unit for unit in sweep.units if (unit.id, unit.preset) == (id, preset)]
            points = list(dict.fromkeys(unit.sets for unit in own))
            if own[0].experiment.kind != "training":
                continue
            if len(points) == 1:
                experiment = own[0].experiment
                tables.append(results.table(experiment, results.outcomes(sweep.out(own[0]), experiment)))
            else:
                tables.append(over_values(sweep, own, points))
    return tables


def over_values(sweep: Sweep, own: Sequence[Unit], points: Sequence[tuple[str, ...]]) -> Table:
    """Every model at every point; the best point of a model is marked."""
    experiment = own[0].experiment
    report = experiment.report
    found: dict[tuple[str, tuple[str, ...]], list[Outcome]] = {}
    for sets in points:
        at = next(unit for unit in own if unit.sets == sets)
        for model, runs in results.outcomes(sweep.out(at), at.experiment).items():
            found[model, sets] = runs
    best = {model: best_point(experiment, model, found) for model in experiment.models}
    paths = [word.partition("=")[0] for word in points[0]]
    unit = f", {report.unit}" if report.unit else ""
    reach = () if report.reach is None else (results.reaching_heading(report),)
    rows = []
    for model in dict.fromkeys(unit.model for unit in own):
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
    notes = [f"{BEST} the best of a model; failed runs are counted and left out of the mean."]
    headings = ("model", *paths, "seeds", "failed", f"{report.score}{unit}", *reach)
    return Table(title, headings, rows, words=1, notes=notes)


def scores(runs: Sequence[Outcome], scale: float) -> list[float]:
    """Of runs that have not failed."""
    return [run.score * scale for run in runs if run.score is not None and not run.failed]


def best_point(
    experiment: Experiment, model: str, found: dict[tuple[str, tuple[str, ...]], list[Outcome]]
) -> tuple[str, ...] | None:
    """Where a model did best: with the fewest failures, and of these with the best mean."""
    sign = 1 if lower_is_better(experiment.models[model].task, experiment.report.score) else -1

    def rank(sets: tuple[str, ...]) -> tuple[float, float]:
        runs = found[model, sets]
        return sum(run.failed for run in runs) / len(runs), sign * statistics.fmean(scores(runs, 1.0))

    able = [sets for name, sets in found if name == model and scores(found[model, sets], 1.0)]
    return min(able, key=rank, default=None)


def plain_outcomes(sweep: Sweep) -> dict[str, Any]:
    """All results as plain data, by experiment, preset and point."""
    found: dict[str, Any] = {}
    for unit in sweep.units:
        experiment = unit.experiment
        if experiment.kind != "training":
            continue
        of_point = results.outcomes(sweep.out(unit), experiment)
        place = found.setdefault(unit.id, {}).setdefault(unit.preset, {})
        place[point_folder(unit.sets)] = {
            "set": dict(word.partition("=")[::2] for word in unit.sets),
            **results.summary(experiment, of_point),
        }
    return found
