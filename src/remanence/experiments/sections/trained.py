"""The section of a report on an experiment that trains models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...report.difference import Sample, difference
from ...report.figure import Figure
from ...report.figures import KNOWN
from ...report.figures.learning_curves import learning_curves
from ...report.section import Section
from ...table import Table
from .. import results
from ..claim_tests import Evidence
from ..configuration import flat, published_table
from ..configuration import one as one_value
from ..figures import files_of, statement_of
from ..judgements import Judgement
from ..models import describe, from_description
from ..registry import IDS, PAPERS, find
from ..schema import PRESETS, Experiment, ReportedNumber
from ..verdicts import decide, how_decided
from .facts import configurations, duration, facts, source
from .run_folders import Key, RunFolder, busy

INTERVAL = "95 % interval"
NO_MATTER = ("checkpoint_every", "evaluate_every", "evaluate_batch", "watch_timescales", "compile")
"""Training settings that do not affect the result."""
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
"""Exceptions that damaged files cause: one of them must not cost the whole page."""


def of_runs(
    key: Key,
    runs: Sequence[RunFolder],
    judgement: Judgement | None,
    closing: Mapping[str, Any] | None = None,
) -> Section:
    """The section of an experiment that trains models, with the tables of its closing analysis, if any."""
    root, id, preset = key
    experiment, notes = experiment_of(id, preset, runs)
    notes += [f"{run.model}, seed {run.seed}: {problem}." for run in runs for problem in run.problems]
    groups = by_model(experiment, runs)
    found: dict[str, list[results.Outcome]] = {}
    for name, group in groups.items():
        for run in group:
            if run.has_result:
                try:
                    outcome = results.outcome(run.path, run.seed, experiment.report, experiment.models[name])
                except UNREADABLE as error:
                    notes.append(f"Left out: {run.model}, seed {run.seed}: {error}.")
                    continue
                found.setdefault(name, []).append(outcome)
    changed = changes(experiment, groups)
    paper = find(id, "paper") if id in IDS else experiment
    evidence = Evidence(experiment, found, changed, len(paper.seeds), (closing or {}).get("found") or {})
    tables = [beside_published(evidence, groups)] if found else []
    tables += [Table(**one) for one in closing["tables"]] if closing else []
    figures = section_figures(experiment, root, notes)
    claims = decide(evidence) if judgement is None else judgement.claims
    rest = {name: numbers for name, numbers in experiment.published.items() if name != experiment.report.score}
    if rest:
        tables.append(replace(published_table(replace(experiment, published=rest)), title="Also published"))
    planned = {(name, seed) for name in experiment.usual for seed in experiment.seeds}
    there = {(run.model, run.seed) for run in runs}
    notes += not_finished([run for run in runs if not run.ended])
    return Section(
        id=id,
        preset=preset,
        title=experiment.title,
        source=source(experiment),
        models=list(groups),
        done=sum(run.ended for run in runs),
        planned=len(planned | there),
        published=experiment.claims,
        claims=claims,
        judged=how_decided(claims, changed) if judgement is None else judgement.because,
        tables=tables,
        figures=figures,
        facts=facts(experiment, groups, changed, judgement),
        runs=single_runs(experiment, groups, found),
        configurations=configurations(groups),
        commands=sorted({run.command for run in runs if run.command}),
        notes=notes,
    )


def experiment_of(id: str, preset: str, runs: Sequence[RunFolder]) -> tuple[Experiment, list[str]]:
    """The experiment that runs belong to, with all their models; and notes about it."""
    notes = []
    if id in IDS and preset in PRESETS:
        experiment = find(id, preset)
    else:
        if id.split("/")[0] in PAPERS:
            notes.append(f"This version of remanence has no {id} with preset {preset}: only its runs are shown.")
        experiment = Experiment(id, id, "", preset, seeds=sorted({run.seed for run in runs}))
    models = dict(experiment.models)
    for run in runs:
        if run.model not in models:
            models[run.model] = from_description(run.description)
    if not experiment.models:
        task = next(iter(models.values())).task
        experiment = replace(experiment, report=ReportedNumber(score=task.goal, digits=4))
    return replace(experiment, models=models), notes


def by_model(experiment: Experiment, runs: Iterable[RunFolder]) -> dict[str, list[RunFolder]]:
    """Runs by model, sorted by seed; models in the order of the experiment."""
    groups: dict[str, list[RunFolder]] = {name: [] for name in experiment.models}
    for run in sorted(runs, key=lambda run: run.seed):
        groups[run.model].append(run)
    return {name: group for name, group in groups.items() if group}


def not_finished(runs: Sequence[RunFolder]) -> list[str]:
    """Notes about runs that have not finished: in progress or interrupted, and kept as they were."""
    kept, going = ([run for run in runs if run.has_result is there] for there in (True, False))
    notes = []
    for group, what in (
        (going, "Their curves are drawn so far; tables and verdicts leave them out."),
        (kept, "They were kept as they were, and count in the tables (~)."),
    ):
        if group:
            notes.append(
                f"{len(group)} run{'s have' if len(group) > 1 else ' has'} not finished: "
                + "; ".join(how_far(run) for run in group[:6])
                + ("; and others" if len(group) > 6 else "")
                + f". {what}"
            )
    return notes


def how_far(run: RunFolder) -> str:
    """Progress of a run that has not finished."""
    share = "" if run.share is None else f" ({run.share:.0%})"
    where = f"at update {run.update:,}{share}" if run.update else "not evaluated yet"
    return f"{run.model}, seed {run.seed}, {where}"


def beside_published(evidence: Evidence, groups: Mapping[str, Sequence[RunFolder]]) -> Table:
    """The table of `remanence run` with parameters, the difference to the published number and its interval."""
    experiment = evidence.experiment
    known = results.table(experiment, evidence.found)
    numbers = experiment.published.get(experiment.report.score, {})
    at = list(known.headings).index("published") + 1
    counts = [parameters_of(groups[row[0]]) for row in known.rows]
    if not numbers:  # nothing to compare with
        rows = [(row[0], count, *row[1 : at - 1], *row[at:]) for row, count in zip(known.rows, counts, strict=True)]
        return titled(known, ("model", "parameters", *known.headings[1 : at - 1], *known.headings[at:]), rows, [])
    rows = []
    for row, count in zip(known.rows, counts, strict=True):
        number = numbers.get(experiment.published_of(row[0]))
        scores = evidence.scores(row[0])
        apart, interval = "-", "-"
        if number is not None and scores:
            one = difference(Sample.of(scores), Sample(number.mean, number.std, evidence.published_runs))
            apart = evidence.shown(one.value, "+")
            if one.low is not None and one.high is not None:
                interval = f"{evidence.shown(one.low, '+')} to {evidence.shown(one.high, '+')}"
        rows.append((row[0], count, *row[1:at], apart, interval, *row[at:]))
    width = len(known.headings)
    found = {experiment.published_of(name) for name in evidence.found}
    for name, number in numbers.items():
        if name not in found:  # published but not run here
            cells = ["-"] * width
            cells[0], cells[at - 1] = name, results.published(number, experiment.report.digits)
            cells[1] = cells[2] = ""
            rows.append((cells[0], "-", *cells[1:at], "-", "-", *cells[at:]))
    headings = ("model", "parameters", *known.headings[1:at], "difference", INTERVAL, *known.headings[at:])
    notes = []
    if found & numbers.keys():
        exact = "A published number without a standard deviation is treated as exact"
        if any(number.std is not None for number in numbers.values()):
            exact = (
                f"A published standard deviation is assumed to be over {evidence.published_runs} runs; "
                "a published number without one is treated as exact"
            )
        notes.append(
            f"Difference: here minus published. {INTERVAL} of that difference: from the spread over seeds "
            f"(Welch's t). {exact}."
        )
    return titled(known, headings, rows, notes)


def titled(known: Table, headings: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> Table:
    """A copy of a table without the experiment in its title, which is in the heading above it."""
    title = known.title.partition(": ")[2] or known.title
    title = title[:1].upper() + title[1:]
    return Table(title, headings, rows, words=known.words, text=known.text, notes=[*known.notes, *notes])


def parameters_of(runs: Iterable[RunFolder]) -> str:
    """Number of parameters of a model, from its first result."""
    ended = (run.files.result for run in runs if run.files.result is not None)
    count = next(ended, {}).get("parameters")
    return "-" if count is None else f"{count:,}"


def changes(experiment: Experiment, groups: Mapping[str, Sequence[RunFolder]]) -> str:
    """How runs differ from the paper preset, in words."""
    if experiment.id not in IDS or experiment.is_own:
        return ""
    paper = find(experiment.id, "paper")
    found: dict[str, str] = {}
    for name, group in groups.items():
        if name in paper.models:
            whole = flat(describe(paper, paper.models[name], 0))
            for field, value in flat(group[0].description).items():
                part, name_of = field.split(".")[0], field.split(".")[-1]
                matters = part in ("task", "layer", "training") and name_of not in NO_MATTER and field in whole
                if matters and whole[field] != value:
                    found[field] = f"{field} {value_of(value)} instead of {value_of(whole[field])}"
    words = list(found.values())
    return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")


def value_of(value: Any) -> str:
    """A setting in words."""
    return "none" if value is None else one_value(value)


def single_runs(
    experiment: Experiment, groups: Mapping[str, Sequence[RunFolder]], found: Mapping[str, Sequence[results.Outcome]]
) -> Table:
    """One row per run, with its status."""
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
                status = "not finished" if run.share is None else f"not finished, {run.share:.0%}"
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


def section_figures(experiment: Experiment, root: Path | None, notes: list[str]) -> list[Figure]:
    """The figures of an experiment, or a note that says why there are none."""
    if root is None:
        notes.append(
            "No figures: these runs are not in EXPERIMENT/PRESET/MODEL/seed-N, where `remanence run` puts them."
        )
        return []
    make = KNOWN.get(experiment.id)
    if make is None:
        if experiment.kind != "training":
            return []
        make = learning_curves
    try:
        return make(files_of(experiment, root), statement_of(experiment))
    except UNREADABLE as error:
        notes.append(f"No figures yet: {error}.")
        return []
