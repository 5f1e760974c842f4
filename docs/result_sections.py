"""Sections of the pages that docs/results.py generates: one per experiment and preset under results/."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from remanence.experiments import claim_tests, judgements, registry, results, text, verdicts
from remanence.experiments.configuration import published_table
from remanence.experiments.figures import files_of
from remanence.experiments.judgements import Judgement
from remanence.experiments.schema import PRESETS, Experiment
from remanence.experiments.sections import sweeps_in, typed
from remanence.report.difference import Sample, difference
from remanence.report.figure import Figure
from remanence.report.figures.by_bin import bins_of
from remanence.report.figures.learning_curves import by_inputs, figure, panel
from remanence.report.files import RunFiles, read
from remanence.report.section import Section as Swept
from remanence.sweeps.folder import Sweep
from remanence.sweeps.section import sections as sections_of_sweep
from remanence.table import Table, mean_and_std

WORDS = ("holds", "does not hold", "open")
PICTURES = "pictures/figures"
"""Folder of the figures of papers and analyses, relative to the pages."""
WEIGHTS = {"best": "the weights with the best validation score", "last": "the weights after the last update"}


@cache
def whole(id: str) -> Experiment:
    """An experiment with the preset `paper`."""
    return registry.find(id, "paper")


@dataclass(frozen=True)
class Run:
    """Files of one run."""

    result: dict[str, Any]
    machine: dict[str, Any]
    times: list[dict[str, Any]]
    curve: dict[int, float]
    """Validation score by update."""

    @classmethod
    def read(cls, directory: Path, score: str) -> Run:
        """Read a run folder."""
        lines = read_lines(directory / "metrics.jsonl")
        return cls(
            result=json.loads((directory / "result.json").read_text("utf-8")),
            machine=json.loads((directory / "machine.json").read_text("utf-8")),
            times=read_lines(directory / "times.jsonl"),
            curve={line["update"]: line["validation"][score] for line in lines if line.get("validation")},
        )

    @property
    def seconds(self) -> float:
        """Time of training and evaluation, without work repeated after an interruption."""
        return math.fsum(line.get("seconds", 0.0) for line in self.times)

    @property
    def interrupted(self) -> bool:
        """Whether the run was interrupted and resumed."""
        return [line["what"] for line in self.times].count("start") > 1

    @property
    def late(self) -> float | None:
        """Mean score over the last fifth of the updates, which is less noisy than the last score; None without one."""
        values = [value for at, value in self.curve.items() if at > 0.8 * max(self.curve)]
        return statistics.fmean(values) if values else None

    def score_at(self, update: int) -> float | None:
        """The latest score up to an update; after the end of the run its last score, or None if it is unfinished."""
        if self.result["status"] == results.UNFINISHED and update > max(self.curve):
            return None
        return next((self.curve[at] for at in sorted(self.curve, reverse=True) if at <= update), None)


@dataclass(frozen=True)
class Section:
    """An experiment and preset with its runs by model, in the order of the experiment's file."""

    experiment: Experiment
    outcomes: dict[str, list[results.Outcome]]
    runs: dict[str, list[Run]]
    closing: dict[str, Any]
    """Result of its closing analysis; empty without one."""

    @property
    def tables(self) -> list[Table]:
        """Tables of its closing analysis."""
        return [Table(**table) for table in self.closing.get("tables", ())]

    @property
    def evidence(self) -> claim_tests.Evidence:
        """What its claims are tested on."""
        return claim_tests.Evidence(self.experiment, self.outcomes, data=self.closing.get("found") or {})

    @property
    def heading(self) -> str:
        """Its title on the page."""
        return f"{self.experiment.id}, preset {self.experiment.preset}"

    @property
    def every_run(self) -> list[Run]:
        """Runs of all models."""
        return [run for runs in self.runs.values() for run in runs]

    @property
    def picture(self) -> str:
        """Plot of the learning curves, relative to the page."""
        return f"pictures/results_{self.experiment.id.replace('/', '_')}_{self.experiment.preset}.png"

    @property
    def seeds(self) -> str:
        """Number of finished runs per model, of those in the `paper` preset."""
        runs = sorted({len(each) for each in self.runs.values()})
        return f"{span(runs)} of {len(whole(self.experiment.id).seeds)}"

    @property
    def epochs(self) -> tuple[str, str]:
        """Epochs trained, and epochs of the `paper` preset: of the models that run by default, if there are any."""
        usual = [name for name in self.runs if name in self.experiment.usual]
        return self.epochs_of(usual or list(self.runs))

    def epochs_of(self, models: Sequence[str]) -> tuple[str, str]:
        """Epochs that these models trained, and epochs of the `paper` preset."""
        trained = sorted({run.result["epochs"] for name in models for run in self.runs[name]})
        there = whole(self.experiment.id).models
        return span(trained), span(sorted({there[name].training.epochs for name in models}))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a JSON Lines file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def span(values: Sequence[float]) -> str:
    """A single number, or the range of sorted numbers, with at most one decimal below ten."""
    low, high = (f"{round(value, 1 if value < 10 else 0):g}" for value in (values[0], values[-1]))
    return low if low == high else f"{low} to {high}"


def sections(folder: Path) -> list[Section]:
    """All training experiments of the papers with results, in their order."""
    found = []
    for id in registry.IDS:
        for preset in PRESETS:
            if whole(id).is_own or not (folder / id / preset).is_dir():
                continue
            experiment = registry.find(id, preset)
            outcomes = results.outcomes(folder, experiment)
            if experiment.kind == "training" and outcomes:
                score = experiment.report.score
                runs = {
                    name: [Run.read(path, score) for path in results.with_result(folder, experiment, name).values()]
                    for name in outcomes
                }
                closing = read(folder / id / preset / "result.json") or {}
                found.append(Section(experiment, outcomes, runs, closing))
    return found


def analyses(folder: Path, own: bool = False) -> dict[tuple[str, str], dict[str, Any]]:
    """Results of analyses and simulations by id and preset, in the order of the papers, or of our own ones."""
    found = {}
    for id in registry.IDS:
        for preset in PRESETS:
            result = read(folder / id / preset / "result.json")
            if result is not None and whole(id).kind != "training" and whole(id).is_own is own:
                found[id, preset] = result
    return found


def verdict_of(id: str, preset: str, judged: dict[tuple[str, str], Judgement]) -> Judgement:
    """The verdict on an experiment."""
    about = f"{id}, preset {preset}"
    verdict = judged.get((id, preset))
    if verdict is None:
        raise ValueError(f"expected a verdict on {about} in {judgements.FILE}, got none; write one")
    for claim in verdict.claims:
        if claim.verdict not in WORDS:
            raise ValueError(f"expected a verdict on {about} of {WORDS}, got {claim.verdict!r}")
    return verdict


def claims_of(verdict: Judgement) -> str:
    """The claims that a person has judged, as a list, with reasons if there are some."""
    return "".join(f"* **{claim.verdict}**: {claim.text} {claim.because}".rstrip() + "\n" for claim in verdict.claims)


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def anchor(heading: str) -> str:
    """Anchor of a heading."""
    return "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def picture_of(figure: Figure) -> str:
    """Plot of a figure of a paper or an analysis, relative to the pages."""
    return f"{PICTURES}/{re.sub('[/#]', '_', figure.id)}.png"


def scores(section: Section) -> str:
    """Table of scores: ours next to the published ones."""
    experiment, report = section.experiment, section.experiment.report
    unit = f", {report.unit}" if report.unit else ""
    late = [results.LATE] if report.late else []
    reach = [] if report.reach is None else [f"updates to {report.reach * report.scale:g}{report.unit and ' %'}"]
    rows = []
    for name, outcomes in section.outcomes.items():
        good = [run.score * report.scale for run in outcomes if run.score is not None and not run.failed]
        number = experiment.published.get(report.score, {}).get(experiment.published_of(name))
        reaching = [run.updates_to_reach for run in outcomes if run.updates_to_reach is not None]
        rows.append(
            (
                f"`{name}`",
                f"{section.runs[name][0].result['parameters']:,}",
                str(len(outcomes)),
                str(sum(run.failed for run in outcomes)),
                mean_and_std(good, report.digits),
                *([mean_and_std(results.late_scores(outcomes, report), report.digits)] if late else []),
                *([results.reached(reaching, len(outcomes))] if reach else []),
                results.published(number, report.digits),
                f"{statistics.fmean(good) - number.mean:+.{report.digits}f}" if number and good else "-",
                ", ".join(results.single(run, report) for run in outcomes),
            )
        )
    head = ("model", "parameters", "runs", "failed", f"{report.split} {report.score}{unit}", *late, *reach)
    text = markdown((*head, "published", "difference", "single runs"), rows)
    weights = sorted({run.result.get("test_weights", "best") for run in section.every_run})
    of = " or ".join(WEIGHTS[each] for each in weights)
    note = f"Mean and sample standard deviation over seeds, for {of}."
    if all(len(each) == 1 for each in section.runs.values()):
        note = f"One seed, for {of}."
    if any(run.failed for outcomes in section.outcomes.values() for run in outcomes):
        note += " Failed runs (!) are counted but excluded from the mean."
    if any(run.unfinished for outcomes in section.outcomes.values() for run in outcomes):
        note += f" {results.unfinished_note(report)}"
    return f"{text}\n{note}\n"


def tested(section: Section) -> str:
    """Results of the significance tests of the claims."""
    parts = verdicts.parts_of_claims().get(section.experiment.id, [])
    evidence = section.evidence
    known = [part for part in parts if not evidence.missing(claim_tests.models_of(part))]
    lines = [f"Welch's test: {claim_tests.best(part, evidence)[1]}\n" for part in known if "best" in part]
    lines += [f"{claim_tests.fewest(part, evidence)[1]}\n" for part in known if "until" in part]
    for part in known:
        if "positive" in part:
            claim = verdicts.decide_part(part, evidence)
            lines += [f"Test of *{claim.text}* {claim.because}\n"] if claim.verdict != "not tested here" else []
    return "\n".join(lines)


def in_bins(section: Section, folder: Path) -> str:
    """Test scores binned by a property of the sequence, with the difference between two models; empty without bins."""
    experiment, report = section.experiment, section.experiment.report
    runs = {
        name: [RunFiles(path, name, seed) for seed, path in results.with_result(folder, experiment, name).items()]
        for name in section.runs
    }
    rows = []
    for score, (low, high) in bins_of(runs, report.score).items():
        values = [[(run.test(score) or 0.0) * report.scale for run in each] for each in runs.values()]
        cells = [mean_and_std(each, report.digits) for each in values]
        if len(values) == 2:
            one = difference(Sample.of(values[1]), Sample.of(values[0]))
            interval = [f"{end:+.{report.digits}f}" for end in (one.low, one.high) if end is not None]
            cells += [f"{one.value:+.{report.digits}f}", " to ".join(interval) or "-"]
        rows.append((f"{low} to {high}" if high else f"over {low}", *cells))
    if not rows:
        return ""
    names = list(runs)
    apart = [f"{names[1]} minus {names[0]}", "95 % interval (Welch)"] if len(names) == 2 else []
    unit = f", {report.unit}" if report.unit else ""
    return markdown((f"test {report.score}{unit}, by bin", *(f"`{name}`" for name in names), *apart), rows)


def also(section: Section) -> str:
    """Tables of the closing analysis, and other published numbers."""
    parts = [table.markdown() + "\n" for table in section.tables]
    published = section.experiment.published
    rest = {name: numbers for name, numbers in published.items() if name != section.experiment.report.score}
    if rest:
        table = published_table(replace(section.experiment, published=rest))
        parts.append(replace(table, title="also published").markdown() + "\n")
    return "\n".join(parts)


def progress(section: Section) -> str:
    """Mean validation scores during training."""
    report = section.experiment.report
    marks = quarters(sorted({update for run in section.every_run for update in run.curve}))
    rows = []
    for name, runs in section.runs.items():
        means = [mean_of([run.score_at(mark) for run in runs]) for mark in marks]
        late = mean_of([run.late for run in runs])
        rows.append((f"`{name}`", *(results.shown(mean, report) for mean in (*means, late))))
    unit = f", {report.unit}" if report.unit else ""
    headings = (*(f"{mark:,}" for mark in marks), results.LATE)
    text = markdown((f"mean validation {report.score}{unit}, after updates", *headings), rows)
    early = any(max(run.curve, default=0) < marks[-1] for run in section.every_run)
    note = "Runs that ended earlier count with their last value; the last fifth is that of the updates of each run."
    if any(run.result["status"] == results.UNFINISHED for run in section.every_run):
        note += " There is no mean after the update at which a run was interrupted."
    return text + (f"\n{note}\n" if early else "")


def mean_of(scores: Sequence[float | None]) -> float | None:
    """Mean score of runs; None if one of them has no score."""
    there = [score for score in scores if score is not None]
    return statistics.fmean(there) if len(there) == len(scores) else None


def quarters(updates: Sequence[int]) -> list[int]:
    """The evaluated updates nearest to each quarter of training, including the end, each once."""
    marks = (min(updates, key=lambda update: abs(update - updates[-1] * part / 4)) for part in (1, 2, 3, 4))
    return list(dict.fromkeys(marks))


def conditions(section: Section, verdict: Judgement) -> str:
    """Conditions of the runs: epochs, machine, versions, times, commands."""
    runs = section.every_run
    machines = [run.machine for run in runs]

    def shared(form: str) -> str:
        return " or ".join(sorted({form.format(**machine) for machine in machines}))

    days = sorted({machine["started"][:10] for machine in machines})
    times = ", ".join(f"`{name}` {max(run.seconds for run in each):.0f}" for name, each in section.runs.items())
    interrupted = sum(run.interrupted for run in runs)
    turns = max(machine.get("turns", 1) for machine in machines)
    others = ", ".join(
        f"`{name}` {' of '.join(dict.fromkeys(section.epochs_of([name])))}"
        for name in section.runs
        if name in section.experiment.extra
    )
    extra = f" ({others})" if others else ""
    epochs, published = section.epochs
    lines = [
        f"Trained for {epochs} {'epoch' if epochs == '1' else 'epochs'}{extra}; the `paper` preset has {published}. "
        f"`remanence show {section.experiment.id}` lists what the paper leaves open and what we chose.",
        f"{shared('{name}')}, {days[0] if len(days) == 1 else f'{days[0]} to {days[-1]}'}; "
        f"{shared('remanence {remanence}, torch {torch}, CUDA {cuda}, Python {python}')}.",
        f"Seconds of training and evaluation, all seeds of a model together: {times}. {verdict.conditions}",
    ]
    if data := "; ".join(dict.fromkeys(run.result["data"] for run in runs if "data" in run.result)):
        lines.insert(1, f"Data: {data}.")
    if turns > 1:
        lines.append(
            f"Up to {turns} of these runs took turns on the GPU, so the seconds of each include those of others."
        )
    if interrupted:
        lines.append(f"{interrupted} of {len(runs)} runs were interrupted and resumed.")
    commands = sorted({command for machine in machines if (command := typed(machine["command"]))})
    return "".join(f"* {line}\n" for line in lines) + "\n```\n" + "\n".join(commands) + "\n```\n"


def written(section: Section, verdict: Judgement, folder: Path) -> str:
    """Section of an experiment."""
    experiment = section.experiment
    left_out = ", ".join(f"`{name}`" for name in whole(experiment.id).usual if name not in section.runs)
    parts = [
        f"## {section.heading}\n",
        f"{experiment.title}. Reproduces {experiment.reproduces} of {registry.PAPERS[experiment.paper]}.\n",
        "Published:\n\n" + "".join(f"* {claim}\n" for claim in experiment.claims),
        f"**Verdict.** {verdict.because}\n",
        claims_of(verdict),
        scores(section) + (f"\nNot run: {left_out}.\n" if left_out else ""),
        tested(section),
        f"![Learning curves of {experiment.id}]({section.picture})\n",
        progress(section),
        in_bins(section, folder),
        also(section),
        conditions(section, verdict),
    ]
    return "\n".join(part for part in parts if part)


def sweeps(folder: Path) -> list[tuple[str, Swept]]:
    """All stored sweeps, with their names."""
    return [
        (place.name, section)
        for place in sweeps_in(folder / "sweeps")
        for section in sections_of_sweep(Sweep.open(place))
    ]


def picture_of_sweep(name: str) -> str:
    """Plot of a sweep, relative to the page."""
    return f"pictures/sweep_{name}.png"


def swept(name: str, section: Swept, folder: Path) -> str:
    """Section of a sweep."""
    said = text.read((folder / "sweeps.yaml").read_text("utf-8"))[name]
    machines = [
        json.loads(path.read_text("utf-8")) for path in sorted((folder / "sweeps" / name).rglob("machine.json"))
    ]
    days = sorted({machine["started"][:10] for machine in machines})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    devices = sorted({"{name}, torch {torch}, CUDA {cuda}".format(**machine) for machine in machines})
    parts = [
        f"### {section.id}, preset {section.preset}, over {section.facts[0][1].partition(':')[0]}\n",
        f"{said['shows'].strip()}\n",
        *(table.markdown() + "\n" for table in section.tables),
        f"![{section.title}]({picture_of_sweep(name)})\n",
        f"* {' or '.join(devices)}, {when}. {said['conditions']}\n",
        f"```\n{said['command']}\n```\n",
    ]
    return "\n".join(parts)


def curves(section: Section, folder: Path) -> Figure:
    """Validation scores over updates, next to the published ones; models with time as an input have their own panel."""
    found = files_of(section.experiment, folder)
    panels = [panel(found, runs, found.score, words) for runs, words in by_inputs(found.expect_runs())]
    return figure(found, "", panels)
