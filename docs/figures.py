"""Make docs/figures.md and its pictures from the files under results/.

    python docs/figures.py [--results FOLDER]

There is a row for every figure of the papers, also for those that have not been run. What a figure shows is written by
hand, in figures_verdicts.yaml beside this file.
"""

from __future__ import annotations

import argparse
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from remanence import files
from remanence.experiments import registry
from remanence.experiments.figures import NotYetRun, figures_of, latest
from remanence.experiments.schema import Experiment
from remanence.report.figure import Figure
from remanence.report.files import read
from remanence.table import Table

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "results"
PAGE = DOCS / "figures.md"
PICTURES = "pictures/figures"
VERDICTS = DOCS / "figures_verdicts.yaml"
WORDS = ("holds", "does not hold", "open")
NOT_YET = "not yet run"
RESOLUTION, COLOURS = 100, 128

HEAD = """# Figures

Every figure of the three papers, and what came out when it was made again. Made by `docs/figures.py` from the files
under `results/`; only the verdicts are written by hand (`docs/figures_verdicts.yaml`).

`remanence run ID` makes the results, `remanence figure ID` draws them: PNG or SVG, light or dark; without an id, all
that have results. Both take `runs/` for the folder of results unless `--out` (run) and `--results` (figure) say
otherwise. From Python:

```python
from pathlib import Path

from remanence.experiments import find
from remanence.experiments.figures import figures_of
from remanence.report.drawing import draw

for figure in figures_of(find("plstm/copy-200", "short"), Path("results")):
    draw(figure, Path("copy-200.svg"), theme="dark")
```

A figure is plain data (`remanence.report.figure`): panels, series and what was published, made from result files alone.

`holds`, `does not hold`: these results confirm what was published, or contradict it. `open`: they do not decide it.
`not yet run`: the command is there, results are not.
"""


@dataclass(frozen=True)
class Row:
    """A figure of a paper: an experiment, with its pictures where it has results."""

    experiment: Experiment
    figures: list[Figure]
    verdict: str
    because: str

    @property
    def pictures(self) -> dict[str, Figure]:
        """Files of its pictures, relative to the page."""
        return {f"{PICTURES}/{re.sub('[/#]', '_', figure.id)}.png": figure for figure in self.figures}

    @property
    def commands(self) -> list[str]:
        """What to type."""
        id, preset = self.experiment.id, self.experiment.preset
        return [f"remanence run {id} --preset {preset}", f"remanence figure {id} --preset {preset}"]


def has_figure(experiment: Experiment) -> bool:
    """Whether an experiment reproduces a figure of a paper."""
    return "Figure" in experiment.reproduces


def rows(folder: Path) -> list[Row]:
    """Every figure in the order of the papers."""
    verdicts: dict[str, Any] = yaml.safe_load(VERDICTS.read_text("utf-8"))
    found = [row(experiment, folder, verdicts.pop(experiment.id, None)) for experiment in filter(has_figure, every())]
    if verdicts:
        raise ValueError(f"expected verdicts on figures of the papers, got {', '.join(verdicts)}")
    return found


def every() -> list[Experiment]:
    """All experiments."""
    return registry.every()


def row(experiment: Experiment, folder: Path, written: dict[str, Any] | None) -> Row:
    """One figure. Results and verdict go together: one without the other is refused."""
    try:
        experiment = latest(experiment.id, folder)
        figures = figures_of(experiment, folder)
    except NotYetRun:
        if written is not None:
            raise ValueError(f"expected results of {experiment.id}, on which there is a verdict, got none") from None
        return Row(experiment, [], NOT_YET, "")
    about = f"{experiment.id}, preset {experiment.preset}"
    if written is None or written["preset"] != experiment.preset:
        raise ValueError(
            f"expected a verdict on {about} in {VERDICTS.name}, got none; look at the figure and write one"
        )
    if written["verdict"] not in WORDS:
        raise ValueError(f"expected a verdict on {about} of {WORDS}, got {written['verdict']!r}")
    return Row(experiment, figures, written["verdict"], " ".join(written["because"].split()))


def anchor(heading: str) -> str:
    """Where a link to a heading goes."""
    return "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def overview(found: list[Row]) -> str:
    """A row for every figure."""
    headings = ("figure", "experiment", "published", "command", "picture", "verdict")
    lines = [
        (
            f"{each.experiment.paper}: {each.experiment.reproduces}",
            f"[{each.experiment.id}]({anchor(each.experiment.id)})",
            " ".join(each.experiment.claims).replace("|", "\\|"),
            f"`remanence figure {each.experiment.id}`",
            ", ".join(f"[{number}]({path})" for number, path in enumerate(each.pictures, 1)) or "-",
            f"**{each.verdict}**",
        )
        for each in found
    ]
    return Table("", headings, lines, words=len(headings)).markdown() + "\n"


def section(each: Row, folder: Path) -> str:
    """A section of the page: what was published, the verdict, the commands, the pictures, and tables of analyses."""
    experiment = each.experiment
    because = f" {each.because}" if each.because else ""
    parts = [
        f"## {experiment.id}\n",
        f"{experiment.title}. {experiment.reproduces} of {registry.PAPERS[experiment.paper]}.\n",
        "Published:\n\n" + "".join(f"* {claim}\n" for claim in experiment.claims),
        f"**Verdict: {each.verdict}.**{because}\n",
        "```\n" + "\n".join(each.commands) + "\n```\n",
        *(f"![{figure.title}]({path})\n" for path, figure in each.pictures.items()),
    ]
    found = read(folder / experiment.id / experiment.preset / "result.json") if each.figures else None
    parts += [Table(**table).markdown() + "\n" for table in (found or {}).get("tables", ())]
    return "\n".join(parts)


def page(folder: Path = RESULTS) -> str:
    """The whole page."""
    found = rows(folder)
    return "\n".join([HEAD, overview(found), *(section(each, folder) for each in found)])


def picture(figure: Figure) -> bytes:
    """A small PNG: a palette makes it a third as large."""
    from PIL import Image

    from remanence.report.drawing import drawn

    whole, small = io.BytesIO(drawn(figure, "png", resolution=RESOLUTION)), io.BytesIO()
    Image.open(whole).convert("RGB").quantize(COLOURS).save(small, format="png", optimize=True)
    return small.getvalue()


def main() -> None:
    """Write the page and its pictures."""
    parser = argparse.ArgumentParser(description="Make docs/figures.md and its pictures from the files under results/.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    folder = parser.parse_args().results
    files.write(PAGE, page(folder).encode())
    (DOCS / PICTURES).mkdir(parents=True, exist_ok=True)
    for each in rows(folder):
        for path, figure in each.pictures.items():
            files.write(DOCS / path, picture(figure))


if __name__ == "__main__":
    main()
