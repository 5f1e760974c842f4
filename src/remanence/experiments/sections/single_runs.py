"""A table with a row for every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...table import Table
from .. import results
from ..schema import Experiment
from .facts import duration
from .run_folders import RunFolder, busy


def single_runs(
    experiment: Experiment, groups: Mapping[str, Sequence[RunFolder]], found: Mapping[str, Sequence[results.Outcome]]
) -> Table:
    """A row for every run, with where it is."""
    report = experiment.report
    rows = []
    for name, group in groups.items():
        outcomes = {one.seed: one for one in found.get(name, ())}
        for run in group:
            outcome = outcomes.get(run.seed)
            curve = run.files.curve(report.score)
            latest = list(curve.values())[-1] if curve else None
            if outcome is not None:
                status = outcome.status + (
                    ", counts as failed" if outcome.failed and outcome.status not in results.FAILED else ""
                )
            else:
                status = "not ended" if run.share is None else f"not ended, {run.share:.0%}"
            rows.append(
                (
                    name,
                    str(run.seed),
                    status,
                    f"{run.update:,}",
                    results.shown(outcome.score if outcome else None, report),
                    results.shown(latest, report),
                    duration(busy([run])) if run.stretches else "-",
                    str(run.machine.get("started", "-"))[:16].replace("T", " "),
                )
            )
    unit = f", {report.unit}" if report.unit else ""
    headings = (
        *("model", "seed", "status", "updates", f"{report.split} {report.score}{unit}"),
        *(f"latest validation {report.score}{unit}", "time", "started (UTC)"),
    )
    return Table("", headings, rows, words=1, text=0)
