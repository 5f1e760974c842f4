"""Generate docs/figures.md and its plots from the files under results/.

    python docs/figures.py [--results FOLDER]

There is a row for every figure of the papers, including those that have not been run, and one for every analysis of
our own that has. The verdicts are written manually, in results/verdicts.yaml.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from result_sections import PICTURES, anchor, claims_of, picture_of

from remanence import files
from remanence.experiments import registry
from remanence.experiments.configuration import published_table
from remanence.experiments.figures import NotYetRun, figures_of, latest
from remanence.experiments.judgements import FILE, Judgement, judgements
from remanence.experiments.schema import Experiment
from remanence.report.drawing import draw
from remanence.report.figure import Figure
from remanence.report.files import read
from remanence.table import Table

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "results"
PAGE = DOCS / "figures.md"
WORDS = ("holds", "does not hold", "open")
NOT_YET = "not yet run"
RESOLUTION, COLOURS = 100, 128

HEAD = """# Figures

Every figure of the three papers, with our version where it has been run. `docs/figures.py` generates this page from the
files under `results/`; only the verdicts are written manually (`results/verdicts.yaml`).

`remanence run ID` produces the results and `remanence figure ID` plots them, as PNG or SVG, light or dark; without an
id it plots everything that has results. The default results folder is `runs/`; change it with `--out` (run) and
`--results` (figure). From Python:

```python
from pathlib import Path

from remanence.experiments import find
from remanence.experiments.figures import figures_of
from remanence.report.drawing import draw

for figure in figures_of(find("plstm/copy-200", "paper"), Path("results")):
    draw(figure, Path("copy-200.svg"), theme="dark")
```

A figure is plain data (`remanence.report.figure`): panels, series and published values, built from result files only.

Verdicts: `holds`, our results confirm the claim; `does not hold`, they contradict it; `open`, they do not decide it;
`not yet run`, the command exists but there are no results. A figure with several claims may have several verdicts.
"""


@dataclass(frozen=True)
class Row:
    """A figure of a paper: its experiment, with plots if it has results."""

    experiment: Experiment
    figures: list[Figure]
    judgement: Judgement | None
    seeds: list[int]
    """Seeds that it shows, if they are not those of the command."""

    @property
    def verdict(self) -> str:
        """The verdicts on its claims, without repetition."""
        if self.judgement is None:
            return NOT_YET
        given = {claim.verdict for claim in self.judgement.claims}
        return ", ".join(word for word in WORDS if word in given)

    @property
    def pictures(self) -> dict[str, Figure]:
        """Plots by file, relative to the page."""
        return {picture_of(figure): figure for figure in self.figures}

    @property
    def commands(self) -> list[str]:
        """Commands that reproduce it."""
        id, preset = self.experiment.id, self.experiment.preset
        seeds = f" --seeds {','.join(map(str, self.seeds))}" if self.seeds else ""
        return [f"remanence run {id} --preset {preset}{seeds}", f"remanence figure {id} --preset {preset}"]


def is_shown(experiment: Experiment, folder: Path) -> bool:
    """Whether an experiment reproduces a figure of a paper, or is an analysis of our own with results."""
    ours = experiment.is_own and experiment.kind == "analysis"
    return "Figure" in experiment.reproduces or (ours and any((folder / experiment.id).glob("*/result.json")))


def rows(folder: Path) -> list[Row]:
    """All figures in the order of the papers, our own last."""
    judged = judgements(folder)
    return [row(experiment, folder, judged) for experiment in every() if is_shown(experiment, folder)]


def every() -> list[Experiment]:
    """All experiments."""
    return registry.every()


def row(experiment: Experiment, folder: Path, judged: Mapping[tuple[str, str], Judgement]) -> Row:
    """One figure. Raises ValueError if it has results without a verdict, or a verdict without results."""
    try:
        experiment = latest(experiment.id, folder)
        figures = figures_of(experiment, folder)
    except NotYetRun:
        if any(id == experiment.id for id, _ in judged):
            raise ValueError(f"expected results of {experiment.id}, on which there is a verdict, got none") from None
        return Row(experiment, [], None, [])
    about = f"{experiment.id}, preset {experiment.preset}"
    judgement = judged.get((experiment.id, experiment.preset))
    if judgement is None or not judgement.claims:
        raise ValueError(f"expected a verdict on {about} in {FILE}, got none; look at the figure and write one")
    for claim in judgement.claims:
        if claim.verdict not in WORDS:
            raise ValueError(f"expected a verdict on {about} of {WORDS}, got {claim.verdict!r}")
    return Row(experiment, figures, judgement, other_seeds(experiment, folder))


def other_seeds(experiment: Experiment, folder: Path) -> list[int]:
    """Seeds of the models that an analysis has read, if they are not those that the command trains."""
    result = read(folder / experiment.id / experiment.preset / "result.json") or {}
    seeds = {run["seed"] for run in result.get("runs") or ()} if experiment.kind == "analysis" else set()
    needed = [registry.find(need.experiment, experiment.preset).seeds for need in experiment.needs.values()]
    return sorted(seeds) if any(seeds != set(usual) for usual in needed) else []


def overview(found: list[Row]) -> str:
    """The table of all figures."""
    headings = ("figure", "experiment", "published", "command", "plot", "verdict")
    lines = [
        (
            each.experiment.reproduces
            if each.experiment.is_own
            else f"{each.experiment.paper}: {each.experiment.reproduces}",
            f"[{each.experiment.id}]({anchor(each.experiment.id)})",
            "-" if each.experiment.is_own else " ".join(each.experiment.claims).replace("|", "\\|"),
            f"`remanence figure {each.experiment.id}`",
            ", ".join(f"[{number}]({path})" for number, path in enumerate(each.pictures, 1)) or "-",
            ", ".join(f"**{word}**" for word in each.verdict.split(", ")),
        )
        for each in found
    ]
    return Table("", headings, lines, words=len(headings)).markdown() + "\n"


def section(each: Row, folder: Path) -> str:
    """Section of a figure: published claims, verdicts, commands, plots, and tables of analyses."""
    experiment = each.experiment
    paper = registry.paper_of(experiment)
    source, whose = (f". {experiment.reproduces} of {paper}.", "Published") if paper else ("", "Expected")
    parts = [
        f"## {experiment.id}\n",
        f"{experiment.title}{source}\n",
        f"{whose}:\n\n" + "".join(f"* {claim}\n" for claim in experiment.claims),
        *(
            [published_table(experiment).markdown() + "\n"]
            if experiment.kind != "training" and experiment.published
            else []
        ),
        judged_as(each),
        "```\n" + "\n".join(each.commands) + "\n```\n",
        *(f"![{figure.title}]({path})\n" for path, figure in each.pictures.items()),
    ]
    found = read(folder / experiment.id / experiment.preset / "result.json") if each.figures else None
    parts += [Table(**table).markdown() + "\n" for table in (found or {}).get("tables", ())]
    return "\n".join(parts)


def judged_as(each: Row) -> str:
    """The verdicts on the claims with reasons; for training runs a link to the results page, which has the reasons."""
    if each.judgement is None:
        return f"**Verdict: {NOT_YET}.**\n"
    experiment = each.experiment
    because = each.judgement.because
    if experiment.kind == "training":
        place = anchor(f"{experiment.id}, preset {experiment.preset}")
        because = f"Numbers, reasons and conditions are on [the results page](results-{experiment.paper}.md{place})."
    return f"Verdict:\n\n{claims_of(each.judgement)}\n{because}\n"


def page(folder: Path = RESULTS) -> str:
    """The whole page."""
    found = rows(folder)
    return "\n".join([HEAD, overview(found), *(section(each, folder) for each in found)])


def main() -> None:
    """Write the page and its plots."""
    parser = argparse.ArgumentParser(description="Generate docs/figures.md and its plots from results/.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="results folder")
    folder = parser.parse_args().results
    files.write(PAGE, page(folder).encode())
    (DOCS / PICTURES).mkdir(parents=True, exist_ok=True)
    for each in rows(folder):
        for path, figure in each.pictures.items():
            draw(figure, DOCS / path, resolution=RESOLUTION, colours=COLOURS)


if __name__ == "__main__":
    main()
