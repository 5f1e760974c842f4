"""What a report says of an experiment that trains models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...report.section import Section
from ...table import Table
from .. import results
from ..configuration import published_table
from ..models import from_description
from ..registry import IDS, PAPERS, find
from ..schema import PRESETS, Experiment, ReportedNumber
from ..verdicts import Evidence, Judgement, decide, how_decided
from .beside_published import table
from .changes import changes
from .facts import configurations, facts, source
from .pictures import UNREADABLE, figures_of
from .run_folders import Key, RunFolder
from .single_runs import single_runs


def of_runs(
    key: Key,
    runs: Sequence[RunFolder],
    judgement: Judgement | None,
    closing: Mapping[str, Any] | None = None,
) -> Section:
    """An experiment whose models were trained, with the tables of the analysis that closes it, where it has one."""
    root, id, preset = key
    experiment, notes = experiment_of(id, preset, runs)
    notes += [f"{run.model}, seed {run.seed}: {problem}." for run in runs for problem in run.problems]
    groups = by_model(experiment, runs)
    found: dict[str, list[results.Outcome]] = {}
    for name, group in groups.items():
        for run in group:
            if run.ended:
                try:
                    outcome = results.outcome(run.path, run.seed, experiment.report, experiment.models[name])
                except UNREADABLE as error:
                    notes.append(f"Left out: {run.model}, seed {run.seed}: {error}.")
                    continue
                found.setdefault(name, []).append(outcome)
    changed = changes(experiment, groups)
    paper = find(id, "paper") if id in IDS else experiment
    evidence = Evidence(experiment, found, changed, len(paper.seeds))
    tables = [table(evidence, groups)] if found else []
    tables += [Table(**one) for one in closing["tables"]] if closing else []
    figures = figures_of(experiment, root, notes)
    claims = decide(evidence) if judgement is None else judgement.claims
    rest = {name: numbers for name, numbers in experiment.published.items() if name != experiment.report.score}
    if rest:
        tables.append(replace(published_table(replace(experiment, published=rest)), title="Also published"))
    planned = {(name, seed) for name in experiment.usual for seed in experiment.seeds}
    there = {(run.model, run.seed) for run in runs}
    going = [run for run in runs if not run.ended]
    if going:
        notes.append(
            f"{len(going)} run{'s have' if len(going) > 1 else ' has'} not ended: "
            + "; ".join(how_far(run) for run in going[:6])
            + ("; and others" if len(going) > 6 else "")
            + ". Curves are drawn as far as they go; tables and verdicts take in what has ended."
        )
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
    """The experiment that runs belong to, with all models they have; and what there is to say about that."""
    notes = []
    if id in IDS and preset in PRESETS:
        experiment = find(id, preset)
    else:
        if id.split("/")[0] in PAPERS:
            notes.append(f"This version of remanence knows no {id} with preset {preset}: shown is what its runs say.")
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
    """Runs by model and in the order of their seeds, models in the order of the experiment."""
    groups: dict[str, list[RunFolder]] = {name: [] for name in experiment.models}
    for run in sorted(runs, key=lambda run: run.seed):
        groups[run.model].append(run)
    return {name: group for name, group in groups.items() if group}


def how_far(run: RunFolder) -> str:
    """Where a run that has not ended is."""
    share = "" if run.share is None else f" ({run.share:.0%})"
    where = f"at update {run.update:,}{share}" if run.update else "nothing evaluated yet"
    return f"{run.model}, seed {run.seed}, {where}"
