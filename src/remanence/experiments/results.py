"""Results of runs, next to the published numbers."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..table import Table, mean_and_std, spread_of
from ..training import files
from ..training.directory import read_result
from ..training.files import RunError
from ..training.schedule import lower_is_better
from .models import count_parameters
from .schema import Experiment, Model, Number, ReportedNumber

SWEEP = "sweep.yaml"
"""File that marks the folder of a sweep. Its runs are reported by the sweep, not one by one."""
FAILED = ("failed", "diverged")
"""Final statuses that count as failures."""
UNFINISHED = "unfinished"
"""Status of a run that was kept in results/ before its end (collecting.py)."""
LATE = "mean of the last fifth"
"""Heading of the mean validation score over the last fifth of a run."""


@dataclass(frozen=True)
class Outcome:
    """One run with a result."""

    seed: int
    status: str
    updates: int
    score: float | None
    """The reported score, unscaled; None if there is none."""
    updates_to_reach: int | None
    failed: bool
    late: float | None = None
    """Mean validation score over the last fifth of the updates, if the report includes it."""

    @property
    def unfinished(self) -> bool:
        """Whether it was kept before its end, so that its score may still change."""
        return self.status == UNFINISHED


def expect_there(folder: Path) -> Path:
    """Check that a folder of results exists."""
    if not folder.is_dir():
        raise ValueError(
            f"expected a folder of results, got {folder}, which is {'a file' if folder.exists() else 'not there'}"
        )
    return folder


def folder_of(out: Path, experiment: Experiment) -> Path:
    """Folder of the runs of an experiment and preset."""
    return out / experiment.id / experiment.preset


def run_folder(out: Path, experiment: Experiment, model: str, seed: int) -> Path:
    """Folder of one run."""
    return folder_of(out, experiment) / model / f"seed-{seed}"


def is_unfinished(folder: Path) -> bool:
    """Whether a folder has the result of a run that was kept before its end; False for a damaged result."""
    with suppress(RunError):
        return (read_result(folder) or {}).get("status") == UNFINISHED
    return False


def with_result(out: Path, experiment: Experiment, model: str) -> dict[int, Path]:
    """Folders of the runs of a model that have a result, by seed."""
    found = {}
    for path in (folder_of(out, experiment) / model).glob("seed-*/result.json"):
        seed = path.parent.name.removeprefix("seed-")
        if seed.isdigit():
            found[int(seed)] = path.parent
    return dict(sorted(found.items()))


def outcome(directory: Path, seed: int, report: ReportedNumber, model: Model) -> Outcome:
    """The outcome of one run with a result."""
    result = read_result(directory)
    assert result is not None
    best = result.get("best") or {}
    scores = (result.get("test") or {}) if report.split == "test" else best
    if scores and report.score not in scores:
        names = ", ".join(name for name in scores if name != "update")
        raise ValueError(f"expected report.score to be one of {names}, got {report.score!r}")
    score = scores.get(report.score)
    worse = report.failed is not None and not is_good(best.get(report.score), report.failed, report, model)
    return Outcome(
        seed=seed,
        status=str(result["status"]),
        updates=int(result["updates"]),
        score=score,
        updates_to_reach=first_reaching(directory, report, model),
        failed=result["status"] != UNFINISHED and (worse or score is None or result["status"] in FAILED),
        late=late(directory, report.score) if report.late else None,
    )


def is_good(value: float | None, level: float, report: ReportedNumber, model: Model) -> bool:
    """Whether a score is at least as good as a level."""
    if value is None:
        return False
    return value <= level if lower_is_better(model.task, report.score) else value >= level


def first_reaching(directory: Path, report: ReportedNumber, model: Model) -> int | None:
    """The first evaluated update at which the validation score was good enough."""
    if report.reach is None:
        return None
    for update, value in curve(directory, report.score).items():
        if is_good(value, report.reach, report, model):
            return update
    return None


def late(directory: Path, score: str) -> float | None:
    """Mean validation score over the last fifth of the updates, which is less noisy than the last score."""
    found = {update: value for update, value in curve(directory, score).items() if value is not None}
    values = [value for update, value in found.items() if update > 0.8 * max(found)]
    return statistics.fmean(values) if values else None


def curve(directory: Path, score: str) -> dict[int, float | None]:
    """A validation score by update; None if it was not finite."""
    found = files.read_lines(directory, "metrics.jsonl")  # empty if the run diverged before its first evaluation
    return {int(line["update"]): line["validation"].get(score) for line in found if line.get("validation")}


def outcomes(out: Path, experiment: Experiment) -> dict[str, list[Outcome]]:
    """Outcomes of all runs of an experiment and preset that have a result, by model."""
    found = {}
    for name, model in experiment.models.items():
        runs = with_result(out, experiment, name)
        if runs:
            found[name] = [outcome(path, seed, experiment.report, model) for seed, path in runs.items()]
    return found


def table(experiment: Experiment, found: Mapping[str, list[Outcome]]) -> Table:
    """Mean and sample standard deviation of every model, next to the published numbers, and every single run."""
    report = experiment.report
    reach = () if report.reach is None else (reaching_heading(report),)
    unit = f", {report.unit}" if report.unit else ""
    after = (*((LATE,) if report.late else ()), *reach)
    headings = ("model", "seeds", "failed", f"{report.score}{unit}", *after, "published", "single runs")
    rows = []
    for name, runs in found.items():
        good = [run.score * report.scale for run in runs if run.score is not None and not run.failed]
        reaching = [run.updates_to_reach for run in runs if run.updates_to_reach is not None]
        rows.append(
            (
                name,
                str(len(runs)),
                str(sum(run.failed for run in runs)),
                mean_and_std(good, report.digits),
                *([mean_and_std(late_scores(runs, report), report.digits)] if report.late else []),
                *([] if report.reach is None else [reached(reaching, len(runs))]),
                published(experiment.published.get(report.score, {}).get(experiment.published_of(name)), report.digits),
                "  ".join(single(run, report) for run in runs),
            )
        )
    notes = []
    if any(run.failed for runs in found.values() for run in runs):
        notes.append("Failed runs (!) are counted and left out of the mean.")
    if any(run.unfinished for runs in found.values() for run in runs):
        notes.append(unfinished_note(report))
    last = report.split == "test" and all(model.training.report == "last" for model in experiment.models.values())
    which = f"{report.split} {report.score} of the {'last weights' if last else 'weights that were best in validation'}"
    title = f"{experiment.id}, preset {experiment.preset}: {which}"
    return Table(title, headings, rows, words=1, text=1, notes=notes)


def unfinished_note(report: ReportedNumber) -> str:
    """What the scores of unfinished runs are."""
    if report.split == "test":
        return "Unfinished runs (~) have no test score."
    return "Unfinished runs (~) count with their best evaluation so far."


def late_scores(runs: Sequence[Outcome], report: ReportedNumber) -> list[float]:
    """Mean scores over the last fifth, for runs that have not failed."""
    return [run.late * report.scale for run in runs if run.late is not None and not run.failed]


def reaching_heading(report: ReportedNumber) -> str:
    """Heading of the column with the number of updates to reach the level."""
    level = shown(report.reach, report, 0 if report.unit else 4)
    return f"updates to {level}{report.unit and ' ' + report.unit}"


def reached(updates: list[int], runs: int) -> str:
    """Mean number of updates to reach the level, and how many runs reached it."""
    if not updates:
        return f"none of {runs}"
    mean = mean_and_std([float(value) for value in updates], 0)
    return mean if len(updates) == runs else f"{mean} ({len(updates)} of {runs})"


def shown(value: float | None, report: ReportedNumber, digits: int | None = None) -> str:
    """A score in its unit."""
    if value is None:
        return "-"
    number = value * report.scale
    return f"{number:g}" if digits is not None else f"{number:.{report.digits}f}"


def single(run: Outcome, report: ReportedNumber) -> str:
    """One run in the table."""
    if run.score is None and run.status in FAILED:
        return f"{run.status}!"
    return shown(run.score, report) + ("!" if run.failed else "~" if run.unfinished else "")


def published(number: Number | None, digits: int) -> str:
    """A published number as text, "-" for None."""
    if number is None:
        return "-"
    return f"{number.mean:.{digits}f}" + ("" if number.std is None else f" +- {number.std:.{digits}f}")


def summary(experiment: Experiment, found: Mapping[str, list[Outcome]]) -> dict[str, Any]:
    """The table as plain data. No times: the same runs give the same file."""
    report = experiment.report

    def of_model(name: str, runs: list[Outcome]) -> dict[str, Any]:
        good = [run.score * report.scale for run in runs if run.score is not None and not run.failed]
        number = experiment.published.get(report.score, {}).get(experiment.published_of(name))
        latest = late_scores(runs, report)
        return {
            "parameters": count_parameters(experiment.models[name]),
            "mean": statistics.fmean(good) if good else None,
            "std": spread_of(good),
            **({"late_mean": statistics.fmean(latest) if latest else None} if report.late else {}),
            **({"late_std": spread_of(latest)} if report.late else {}),
            "runs": len(runs),
            "failed": sum(run.failed for run in runs),
            "published": None if number is None else {"mean": number.mean, "std": number.std},
            "seeds": {str(run.seed): of_run(run) for run in runs},
        }

    def of_run(run: Outcome) -> dict[str, Any]:
        score = None if run.score is None else run.score * report.scale
        known = {"score": score, "status": run.status, "updates": run.updates, "failed": run.failed}
        return known if report.reach is None else {**known, "updates_to_reach": run.updates_to_reach}

    return {
        "experiment": experiment.id,
        "preset": experiment.preset,
        "reproduces": experiment.reproduces,
        "score": report.score,
        "split": report.split,
        "unit": report.unit,
        "reach": report.reach,
        "models": {name: of_model(name, runs) for name, runs in found.items()},
    }


def save(path: Path, content: Mapping[str, Any], protected: bool = False) -> None:
    """Write plain data as JSON atomically; if `protected`, with a digest that later steps verify."""
    data = (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if protected:
            path.unlink(missing_ok=True)  # never keep a file next to the digest of another
            files.keep_digests(path.parent, {path.name: files.digest(data)})
    except OSError as error:
        raise files.cannot_write(path, error) from error
    files.write(path, data)
