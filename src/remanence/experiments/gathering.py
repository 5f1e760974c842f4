"""From folders of results to what `remanence report` shows. What has not ended is shown as far as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..report.difference import Sample, difference
from ..report.figure import Figure
from ..report.figures import KNOWN
from ..report.figures.learning_curves import learning_curves
from ..report.section import Section
from ..table import Table
from ..training.directory import read_result
from . import results
from .configuration import flat, in_words, listed, published_table
from .configuration import one as one_value
from .figures import files_of, statement_of
from .models import describe, from_description
from .registry import IDS, PAPERS, find
from .run_folders import RunFolder, busy, search
from .schema import PRESETS, Experiment, Report
from .verdicts import Evidence, Judgement, decide, how_decided, judgements

NO_MATTER = ("checkpoint_every", "evaluate_every", "evaluate_batch", "watch_timescales", "compile")
"""Settings of a training that do not change what is trained."""
LONGEST = 20_000
"""Letters of a configuration that are shown."""
INTERVAL = "95 % interval"
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
"""What files that are not as they should be end in: one of them must not cost the whole page."""
Key = tuple[Path | None, str, str]
"""Folder of results, experiment and preset."""


def gather(folders: Sequence[Path]) -> list[Section]:
    """Everything that is in some folders, in the order of the papers.

    Args:
        folders: of results, of an experiment, or of single runs. Those inside are found.

    Raises:
        ValueError: a folder is not there, or there is nothing in any of them.
    """
    runs: dict[Key, list[RunFolder]] = {}
    analyses: dict[Key, dict[str, Any]] = {}
    problems: list[str] = []
    for path in dict.fromkeys(found for folder in folders for found in search(expect_folder(folder).resolve())):
        try:
            if (path / "config.yaml").exists():
                run = RunFolder.read(path)
                runs.setdefault((run.root, run.id, run.preset), []).append(run)
            else:
                result = read_result(path) or {}
                if "function" in result and "tables" in result:
                    id, preset = str(result["experiment"]), str(result["preset"])
                    analyses[path.parents[len(id.split("/"))], id, preset] = result
        except UNREADABLE as error:
            problems.append(f"{path.name}: {error}")
    if not runs and not analyses:
        places = ", ".join(map(str, folders))
        problem = f" ({problems[0]})" if problems else ""
        raise ValueError(f"expected folders with results of `remanence run`, got {places} without any{problem}")
    judged = {root: judgements(root) for root, _, _ in (*runs, *analyses) if root is not None}
    several = len({key[0] for key in (*runs, *analyses)}) > 1
    sections = []
    for key in sorted({*runs, *analyses}, key=order):
        root, id, preset = key
        judgement = judged.get(root, {}).get((id, preset)) if root is not None else None
        try:
            if key in runs:
                section = of_runs(key, runs[key], judgement, analyses.get(key))
            else:
                section = of_analysis(key, analyses[key], judgement)
        except UNREADABLE as error:
            problems.append(f"{id}, preset {preset}: {error}")
            continue
        sections.append(replace(section, place=root.name if several and root is not None else ""))
    if not sections:
        raise ValueError(f"expected results that can be read, got none: {'; '.join(problems)}")
    return with_problems(sections, problems)


def expect_folder(folder: Path) -> Path:
    """A folder that is there."""
    if not folder.is_dir():
        raise ValueError(
            f"expected a folder of results, got {folder}, which is {'a file' if folder.exists() else 'not there'}"
        )
    return folder


def order(key: Key) -> tuple[int, str, int, str]:
    """As in the papers; what they do not have comes last."""
    root, id, preset = key
    known = IDS.index(id) if id in IDS else len(IDS)
    return known, id, PRESETS.index(preset) if preset in PRESETS else len(PRESETS), str(root or "")


def with_problems(sections: list[Section], problems: Sequence[str]) -> list[Section]:
    """What could not be read is said at the first experiment, where nobody overlooks it."""
    first, *others = sections
    notes = [f"Left out: {problem}." for problem in problems]
    return [replace(first, notes=[*notes, *first.notes]), *others]


# Trainings.


def of_runs(
    key: Key, runs: Sequence[RunFolder], judgement: Judgement | None, closing: Mapping[str, Any] | None = None
) -> Section:
    """An experiment whose models were trained, with the tables of the analysis that closes it, where it has one."""
    root, id, preset = key
    experiment, notes = experiment_of(id, preset, runs)
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
    planned = {(name, seed) for name in experiment.models for seed in experiment.seeds}
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
        notes.append(f"This version of remanence knows no {id} with preset {preset}: shown is what its runs say.")
        experiment = Experiment(id, id, "", preset, seeds=sorted({run.seed for run in runs}))
    models = dict(experiment.models)
    for run in runs:
        if run.model not in models:
            models[run.model] = from_description(run.description)
    if not experiment.models:
        task = next(iter(models.values())).task
        experiment = replace(experiment, report=Report(score=task.goal, digits=4))
    return replace(experiment, models=models), notes


def by_model(experiment: Experiment, runs: Iterable[RunFolder]) -> dict[str, list[RunFolder]]:
    """Runs by model and in the order of their seeds, models in the order of the experiment."""
    groups: dict[str, list[RunFolder]] = {name: [] for name in experiment.models}
    for run in sorted(runs, key=lambda run: run.seed):
        groups[run.model].append(run)
    return {name: group for name, group in groups.items() if group}


def changes(experiment: Experiment, groups: Mapping[str, Sequence[RunFolder]]) -> str:
    """In what runs are not as in the preset of the paper, in words."""
    if experiment.id not in IDS or experiment.paper == "own":
        return ""
    paper = find(experiment.id, "paper")
    found: dict[str, str] = {}
    for name, group in groups.items():
        if name in paper.models:
            whole = flat(describe(paper, paper.models[name], 0))
            for field, value in flat(group[0].description).items():
                part, name_of = field.split(".")[0], field.split(".")[-1]
                matters = part in ("task", "layer", "training") and name_of not in NO_MATTER and field in whole
                if matters and plain(whole[field]) != plain(value):
                    found[field] = f"{field} {value_of(value)} instead of {value_of(whole[field])}"
    words = list(found.values())
    return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")


def value_of(value: Any) -> str:
    """A setting in words."""
    return "none" if value is None else one_value(value)


def plain(value: Any) -> Any:
    """A list for a tuple, as files have it."""
    return list(value) if isinstance(value, tuple) else value


def table(evidence: Evidence, groups: Mapping[str, Sequence[RunFolder]]) -> Table:
    """The table of `remanence run`, with parameters, the difference to what was published and how sure that is."""
    experiment = evidence.experiment
    known = results.table(experiment, evidence.found)
    numbers = experiment.published.get(experiment.report.score, {})
    at = list(known.headings).index("published") + 1
    counts = [parameters_of(groups[row[0]]) for row in known.rows]
    if not numbers:  # nothing to stand beside
        rows = [(row[0], count, *row[1 : at - 1], *row[at:]) for row, count in zip(known.rows, counts, strict=True)]
        return titled(known, ("model", "parameters", *known.headings[1 : at - 1], *known.headings[at:]), rows, [])
    rows = []
    for row, count in zip(known.rows, counts, strict=True):
        number = numbers.get(row[0])
        scores = evidence.scores(row[0])
        apart, interval = "-", "-"
        if number is not None and scores:
            one = difference(Sample.of(scores), Sample(number.mean, number.std, evidence.published_runs))
            apart = evidence.shown(one.value, "+")
            if one.low is not None and one.high is not None:
                interval = f"{evidence.shown(one.low, '+')} to {evidence.shown(one.high, '+')}"
        rows.append((row[0], count, *row[1:at], apart, interval, *row[at:]))
    width = len(known.headings)
    for name, number in numbers.items():
        if name not in evidence.found:  # published and not run here
            cells = ["-"] * width
            cells[0], cells[at - 1] = name, results.published(number, experiment.report.digits)
            cells[1] = cells[2] = ""
            rows.append((cells[0], "-", *cells[1:at], "-", "-", *cells[at:]))
    headings = ("model", "parameters", *known.headings[1:at], "difference", INTERVAL, *known.headings[at:])
    notes = []
    if any(name in evidence.found for name in numbers):
        exact = "A published number without a standard deviation is taken as exact"
        if any(number.std is not None for number in numbers.values()):
            exact = (
                f"A published standard deviation is taken as one over {evidence.published_runs} runs; "
                "a published number without one as exact"
            )
        notes.append(
            f"Difference: here minus published. {INTERVAL}: of that difference, from the spread over seeds "
            f"(Welch's t). {exact}."
        )
    return titled(known, headings, rows, notes)


def titled(known: Table, headings: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> Table:
    """A table like another, without the experiment in its title, which stands above it."""
    title = known.title.partition(": ")[2] or known.title
    title = title[:1].upper() + title[1:]
    return Table(title, headings, rows, words=known.words, text=known.text, notes=[*known.notes, *notes])


def parameters_of(runs: Iterable[RunFolder]) -> str:
    """The number of parameters of a model, as its first result says."""
    ended = (run.files.result for run in runs if run.files.result is not None)
    count = next(ended, {}).get("parameters")
    return "-" if count is None else f"{count:,}"


def figures_of(experiment: Experiment, root: Path | None, notes: list[str]) -> list[Figure]:
    """Figures as far as there is something to draw; else a note."""
    if root is None:
        notes.append(
            "No figures: these runs do not lie in EXPERIMENT/PRESET/MODEL/seed-N as `remanence run` puts them."
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


def how_far(run: RunFolder) -> str:
    """Where a run that has not ended is."""
    share = "" if run.share is None else f" ({run.share:.0%})"
    where = f"at update {run.update:,}{share}" if run.update else "nothing evaluated yet"
    return f"{run.model}, seed {run.seed}, {where}"


def source(experiment: Experiment) -> str:
    """Which figure or table of which paper."""
    if experiment.paper == "own" or experiment.paper not in PAPERS:
        return ""
    return f"Reproduces {experiment.reproduces} of {PAPERS[experiment.paper]}."


def facts(
    experiment: Experiment,
    groups: Mapping[str, Sequence[RunFolder]],
    changed: str,
    judgement: Judgement | None,
) -> list[tuple[str, str]]:
    """What was run, where, when and for how long."""
    runs = [run for group in groups.values() for run in group]
    described = {"models": {name: group[0].description for name, group in groups.items()}}
    words = in_words(experiment, described)
    words["seeds"] = ", ".join(map(str, sorted({run.seed for run in runs})))
    days = sorted({str(run.machine["started"])[:10] for run in runs if "started" in run.machine})
    interrupted = sum(run.was_interrupted for run in runs)
    found = [
        ("not as published", changed),
        *words.items(),
        ("device", shared(runs, "{name} ({device})")),
        ("machine", shared(runs, "{system}, cores: {cores}, threads used: {threads}")),
        ("versions", shared(runs, "remanence {remanence}, torch {torch}, Python {python}, CUDA {cuda}")),
        ("started", " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""),
        (
            "time",
            "; ".join(
                [
                    f"{duration(busy(runs))} in all",
                    *(f"{name} {duration(busy(group))}" for name, group in groups.items()),
                ]
            ),
        ),
        ("stopped and continued", f"{interrupted} of {len(runs)} runs" if interrupted else ""),
        ("conditions", "" if judgement is None else judgement.conditions),
        ("choices and deviations", " ".join(experiment.choices)),
    ]
    return [(name, value) for name, value in found if value]


def shared(runs: Iterable[RunFolder], form: str) -> str:
    """What machines say, every answer once."""
    found = []
    for run in runs:
        try:
            found.append(form.format(**run.machine).replace(", CUDA None", ""))
        except (KeyError, IndexError):
            continue
    return " or ".join(sorted(set(found)))


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


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


def configurations(groups: Mapping[str, Sequence[RunFolder]]) -> list[tuple[str, str]]:
    """The configuration of every model, several where its runs differ."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, group in groups.items():
        for run in group:
            found.setdefault((name, run.text[:LONGEST]), []).append(str(run.seed))
    return [
        (f"{name}, seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}", text)
        for (name, text), seeds in found.items()
    ]


# Analyses and simulations.


def of_analysis(key: Key, result: Mapping[str, Any], judgement: Judgement | None) -> Section:
    """An experiment that looks at trained models, or computes something."""
    root, id, preset = key
    known = id in IDS and preset in PRESETS
    experiment = (
        find(id, preset) if known else Experiment(id, id, str(result.get("reproduces", "")), preset, "analysis")
    )
    notes = [] if known else [f"This version of remanence knows no {id} with preset {preset}."]
    tables = [Table(**one) for one in result["tables"]]
    if experiment.published:
        tables.append(replace(published_table(experiment), title="Published"))
    found = Evidence(experiment, {}, data=result.get("found") or {})
    claims = decide(found) if judgement is None else judgement.claims
    looked_at = [f"{one.get('need')} {one.get('model')} seed {one.get('seed')}" for one in result.get("runs") or []]
    stated = [
        ("function", f"{result['function']}: {listed(result.get('arguments') or {})}"),
        ("runs looked at", ", ".join(looked_at)),
        ("choices and deviations", " ".join(experiment.choices)),
    ]
    return Section(
        id=id,
        preset=preset,
        title=experiment.title,
        source=source(experiment),
        models=list(dict.fromkeys(str(one.get("model")) for one in result.get("runs") or [])),
        published=experiment.claims,
        claims=claims,
        judged=how_decided(claims, "") if judgement is None else judgement.because,
        tables=tables,
        figures=figures_of(experiment, root, notes),
        facts=[(name, value) for name, value in stated if value],
        notes=notes,
    )
