"""Make docs/results.md and its pictures from the files under results/.

    python docs/results.py [--results FOLDER]

Numbers come from the run folders, what was published from the experiments' own files. What the numbers mean is written
by hand, in results_verdicts.yaml beside this file. Only experiments that train have a section.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import math
import re
import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from remanence.experiments import registry, results
from remanence.experiments.schema import PRESETS, Experiment, Model
from remanence.table import mean_and_std
from remanence.training import files

if TYPE_CHECKING:  # the page alone needs no matplotlib
    from matplotlib.axes import Axes

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "results"
VERDICTS = DOCS / "results_verdicts.yaml"
WORDS = ("holds", "does not hold", "open")

# After Okabe & Ito: told apart with every kind of colour vision. Dashes differ too. The first belong to these models.
OWNERS = ("lstm", "lstm-chrono", "plstm")
LINES: tuple[tuple[str, Any], ...] = (
    ("#D55E00", (0, (1, 1))),
    ("#0072B2", (0, (5, 1.5))),
    ("#008A64", "-"),
    ("#A84C86", (0, (5, 1.5, 1, 1.5))),
    ("#C28500", (0, (3, 1))),
    ("#333333", "-"),
)
INK, FAINT = "#333333", "#DDDDDD"
COLOURS = 64

HEAD = """# Results

What came out when experiments were run, beside what was published. Made by `docs/results.py` from the files under
`results/`; only the verdicts are written by hand (`docs/results_verdicts.yaml`). Experiments of `remanence list` that
are not here have no results yet.

`holds`, `does not hold`: these runs confirm the claim, or contradict it. `open`: they do not decide it.
"""


@dataclass(frozen=True)
class Run:
    """What one run left behind."""

    result: dict[str, Any]
    machine: dict[str, Any]
    times: list[dict[str, Any]]
    curve: dict[int, float]
    """The validation score by update."""

    @classmethod
    def read(cls, directory: Path, score: str) -> Run:
        """From its folder."""
        lines = read_lines(directory / "metrics.jsonl")
        return cls(
            result=json.loads((directory / "result.json").read_text("utf-8")),
            machine=json.loads((directory / "machine.json").read_text("utf-8")),
            times=read_lines(directory / "times.jsonl"),
            curve={line["update"]: line["validation"][score] for line in lines if line.get("validation")},
        )

    @property
    def seconds(self) -> float:
        """Training and evaluation, without what was done twice after an interruption."""
        return math.fsum(line.get("seconds", 0.0) for line in self.times)

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped and went on."""
        return [line["what"] for line in self.times].count("start") > 1

    def score_at(self, update: int) -> float | None:
        """The latest score up to an update; a run that ended earlier keeps its last."""
        return next((self.curve[at] for at in sorted(self.curve, reverse=True) if at <= update), None)


@dataclass(frozen=True)
class Section:
    """An experiment and preset with its runs by model, in the order of the experiment's file."""

    experiment: Experiment
    outcomes: dict[str, list[results.Outcome]]
    runs: dict[str, list[Run]]

    @property
    def heading(self) -> str:
        """Its title on the page."""
        return f"{self.experiment.id}, preset {self.experiment.preset}"

    @property
    def every_run(self) -> list[Run]:
        """Of all models."""
        return [run for runs in self.runs.values() for run in runs]

    @property
    def picture(self) -> str:
        """The file of its learning curves, relative to the page."""
        return f"pictures/results_{self.experiment.id.replace('/', '_')}_{self.experiment.preset}.png"

    @property
    def epochs(self) -> tuple[str, str]:
        """How long it was trained, and how long the paper's preset trains."""
        trained = sorted({run.result["epochs"] for run in self.every_run})
        whole = sorted({registry.find(self.experiment.id, "paper").models[name].training.epochs for name in self.runs})
        return span(trained), span(whole)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON lines file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def span(values: Sequence[float]) -> str:
    """Sorted numbers as one, or from the lowest to the highest."""
    low, high = values[0], values[-1]
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def sections(folder: Path) -> list[Section]:
    """Everything that has results, in the order of the papers."""
    found = []
    for id in registry.IDS:
        for preset in PRESETS:
            if not (folder / id / preset).is_dir():
                continue
            experiment = registry.find(id, preset)
            outcomes = results.outcomes(folder, experiment)
            if experiment.kind == "training" and outcomes:
                score = experiment.report.score
                runs = {
                    name: [Run.read(path, score) for path in results.finished(folder, experiment, name).values()]
                    for name in outcomes
                }
                found.append(Section(experiment, outcomes, runs))
    return found


def verdict_of(section: Section, verdicts: dict[str, Any]) -> dict[str, Any]:
    """What was written about an experiment."""
    id, preset = section.experiment.id, section.experiment.preset
    verdict: dict[str, Any] | None = (verdicts.get(id) or {}).get(preset)
    if verdict is None:
        raise ValueError(f"expected a verdict on {section.heading} in {VERDICTS.name}, got none; write one")
    for claim in verdict["claims"]:
        if claim["verdict"] not in WORDS:
            raise ValueError(f"expected a verdict on {section.heading} of {WORDS}, got {claim['verdict']!r}")
    return verdict


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def anchor(heading: str) -> str:
    """Where a link to a heading goes."""
    return "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def overview(found: Sequence[Section], verdicts: dict[str, Any]) -> str:
    """Every claim with its verdict."""
    rows = []
    for section in found:
        for claim in verdict_of(section, verdicts)["claims"]:
            link = f"[{section.experiment.id}]({anchor(section.heading)})"
            rows.append((link, " of ".join(section.epochs), claim["claim"], f"**{claim['verdict']}**"))
    return markdown(("experiment", "epochs, of the paper preset's", "claim", "verdict"), rows)


def scores(section: Section) -> str:
    """The table of an experiment: ours beside the published."""
    experiment, report = section.experiment, section.experiment.report
    unit = f", {report.unit}" if report.unit else ""
    reach = [] if report.reach is None else [f"updates to {report.reach * report.scale:g}{report.unit and ' %'}"]
    rows = []
    for name, outcomes in section.outcomes.items():
        good = [run.score * report.scale for run in outcomes if run.score is not None and not run.failed]
        number = experiment.published.get(report.score, {}).get(name)
        reaching = [run.updates_to_reach for run in outcomes if run.updates_to_reach is not None]
        rows.append(
            (
                f"`{name}`",
                f"{section.runs[name][0].result['parameters']:,}",
                str(len(outcomes)),
                str(sum(run.failed for run in outcomes)),
                mean_and_std(good, report.digits),
                *([results.reached(reaching, len(outcomes))] if reach else []),
                results.published(number, report.digits),
                f"{statistics.fmean(good) - number.mean:+.{report.digits}f}" if number and good else "-",
                ", ".join(results.single(run, report) for run in outcomes),
            )
        )
    head = ("model", "parameters", "runs", "failed", f"{report.split} {report.score}{unit}", *reach)
    text = markdown((*head, "published", "difference", "single runs"), rows)
    note = "Mean and sample standard deviation over seeds, of the weights that were best in validation."
    if any(run.failed for outcomes in section.outcomes.values() for run in outcomes):
        note += " Failed runs (!) are counted and left out of the mean."
    return f"{text}\n{note}\n"


def progress(section: Section) -> str:
    """Mean validation scores on the way."""
    report = section.experiment.report
    marks = quarters(sorted({update for run in section.every_run for update in run.curve}))
    rows = []
    for name, runs in section.runs.items():
        means = [mean_at(runs, mark) for mark in marks]
        rows.append((f"`{name}`", *(results.shown(mean, report) for mean in means)))
    unit = f", {report.unit}" if report.unit else ""
    text = markdown((f"mean validation {report.score}{unit}, after updates", *(f"{mark:,}" for mark in marks)), rows)
    early = any(max(run.curve, default=0) < marks[-1] for run in section.every_run)
    return text + ("\nA run that ended earlier counts with its last value.\n" if early else "")


def mean_at(runs: Sequence[Run], update: int) -> float | None:
    """The mean score of runs at an update, None where one has none yet."""
    values = [value for value in (run.score_at(update) for run in runs) if value is not None]
    return statistics.fmean(values) if len(values) == len(runs) else None


def quarters(updates: Sequence[int]) -> list[int]:
    """The evaluated updates nearest to each quarter of a training, its end among them."""
    return [min(updates, key=lambda update: abs(update - updates[-1] * part / 4)) for part in (1, 2, 3, 4)]


def command_of(machine: dict[str, Any]) -> str:
    """The command of a run as one would type it, without where its files went and how much it said."""
    words = shlex.split(machine["command"])[1:]
    if "--out" in words:
        at = words.index("--out")
        del words[at : at + 2]
    return shlex.join(["remanence", *(word for word in words if word != "--quiet")])


def conditions(section: Section, verdict: dict[str, Any]) -> str:
    """How it was run: epochs, machine, versions, times, commands."""
    runs = section.every_run
    machines = [run.machine for run in runs]

    def shared(form: str) -> str:
        return " or ".join(sorted({form.format(**machine) for machine in machines}))

    days = sorted({machine["started"][:10] for machine in machines})
    times = ", ".join(f"`{name}` {max(run.seconds for run in each):.0f}" for name, each in section.runs.items())
    interrupted = sum(run.interrupted for run in runs)
    lines = [
        f"Trained for {section.epochs[0]} epochs; the `paper` preset has {section.epochs[1]}. "
        f"`remanence show {section.experiment.id}` says what the paper leaves open and what was chosen.",
        f"{shared('{name}')}, {days[0] if len(days) == 1 else f'{days[0]} to {days[-1]}'}; "
        f"{shared('remanence {remanence}, torch {torch}, CUDA {cuda}, Python {python}')}.",
        f"Seconds of training with evaluation, all seeds of a model together: {times}. {verdict['conditions']}",
    ]
    if interrupted:
        lines.append(f"{interrupted} of {len(runs)} runs were stopped on the way and continued.")
    commands = sorted({command_of(machine) for machine in machines})
    return "".join(f"* {line}\n" for line in lines) + "\n```\n" + "\n".join(commands) + "\n```\n"


def written(section: Section, verdict: dict[str, Any]) -> str:
    """A section of the page."""
    experiment = section.experiment
    left_out = ", ".join(f"`{name}`" for name in experiment.models if name not in section.runs)
    parts = [
        f"## {section.heading}\n",
        f"{experiment.title}. Reproduces {experiment.reproduces} of {registry.PAPERS[experiment.paper]}.\n",
        "Published:\n\n" + "".join(f"* {claim}\n" for claim in experiment.claims),
        f"**Verdict.** {verdict['because']}\n",
        scores(section) + (f"\nNot run: {left_out}.\n" if left_out else ""),
        f"![Learning curves of {experiment.id}]({section.picture})\n",
        progress(section),
        conditions(section, verdict),
    ]
    return "\n".join(parts)


def page(folder: Path = RESULTS) -> str:
    """The whole page."""
    found = sections(folder)
    verdicts = yaml.safe_load(VERDICTS.read_text("utf-8"))
    parts = [HEAD, overview(found, verdicts), *(written(each, verdict_of(each, verdicts)) for each in found)]
    return "\n".join(parts)


def draw(section: Section) -> bytes:
    """Learning curves as a PNG: single seeds thin, their mean thick."""
    import matplotlib
    from matplotlib.figure import Figure
    from PIL import Image

    models, report = section.experiment.models, section.experiment.report
    groups = [[name for name in section.runs if sees_time(models[name]) is timed] for timed in (False, True)]
    panels = [names for names in groups if names]
    with matplotlib.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(3.8 + 3.4 * len(panels), 3.7), dpi=100, layout="constrained")
        for axes, names in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
            draw_panel(axes, section, names)
        unit = f", {report.unit}" if report.unit else ""
        figure.axes[0].set_ylabel(f"validation {report.score}{unit}")
        figure.suptitle(section.heading, fontsize=10, fontweight="bold")
        drawn, small = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn, format="png")
    # A palette makes the file a third as large.
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(small, format="png", optimize=True)
    return small.getvalue()


def lines_of(names: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Colour and dashes by model, the same in all pictures for those that most of them have."""
    own = {name: LINES[OWNERS.index(base)] for name in names if (base := name.removesuffix("-time")) in OWNERS}
    others = itertools.cycle([line for line in LINES if line not in own.values()])
    return {name: own.get(name) or next(others) for name in names}


def draw_panel(axes: Axes, section: Section, names: Sequence[str]) -> None:
    """The curves of some models."""
    scale = section.experiment.report.scale
    for name, (colour, dashes) in lines_of(names).items():
        runs = section.runs[name]
        for run in runs:
            axes.plot(list(run.curve), [value * scale for value in run.curve.values()], colour, lw=0.7, alpha=0.4)
        means = {update: mean_at(runs, update) for update in sorted({update for run in runs for update in run.curve})}
        known = {update: mean * scale for update, mean in means.items() if mean is not None}
        axes.plot(list(known), list(known.values()), color=colour, linestyle=dashes, linewidth=2.2, label=name)
    chance = section.every_run[0].result.get("references", {}).get(section.experiment.report.score)
    if chance is not None:
        axes.axhline(chance * scale, color=INK, linewidth=0.8, linestyle=":")
        place = axes.get_yaxis_transform()
        axes.text(1.01, chance * scale, "chance", transform=place, va="center", fontsize=9)
    axes.set_xlabel("updates (thick: mean over seeds, thin: single seeds)")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(left=0)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, handlelength=2.8, borderpad=0)


def sees_time(model: Model) -> bool:
    """Whether time is among the inputs of a model."""
    return bool(getattr(model.task, "time_input", False))


def main() -> None:
    """Write the page and its pictures."""
    parser = argparse.ArgumentParser(description="Make docs/results.md and its pictures from the files under results/.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    folder = parser.parse_args().results
    files.write(DOCS / "results.md", page(folder).encode())
    for section in sections(folder):
        files.write(DOCS / section.picture, draw(section))


if __name__ == "__main__":
    main()
