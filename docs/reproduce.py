"""The tables of docs/reproduce.md: every experiment by its place in a paper, with its command.

    python docs/reproduce.py

writes what stands between the two marks of the page from the experiments themselves. The rest is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from remanence import files
from remanence.experiments import PAPERS, PRESETS, Experiment, every

DOCS = Path(__file__).parent
PAGE = DOCS / "reproduce.md"
RESULTS = DOCS.parent / "results"
BEGIN, END = "<!-- tables: made by docs/reproduce.py -->", "<!-- end of tables -->"
HEADINGS = ("in the paper", "what it is", "command", "as published it takes", "came out")


def page(text: str, experiments: list[Experiment]) -> str:
    """The page with its tables made anew."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{tables(experiments)}\n{END}{after}"


def tables(experiments: list[Experiment]) -> str:
    """A section for every paper."""
    parts = []
    for paper, title in PAPERS.items():
        rows = [row(experiment) for experiment in experiments if experiment.paper == paper]
        lines = [HEADINGS, ("---",) * len(HEADINGS), *rows]
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        parts.append(f"### {title}\n\n{table}")
    return "\n".join(parts)


def row(experiment: Experiment) -> tuple[str, ...]:
    """One experiment."""
    command = f"`remanence run {experiment.id}`"
    cost = experiment.cost.get("paper", "-")
    return experiment.reproduces, experiment.title, command, cost, came_out(experiment.id)


def came_out(id: str) -> str:
    """Links to what came out: trainings on the page of results, analyses and simulations on that of figures."""
    links = []
    for preset in PRESETS:
        folder = RESULTS / id / preset
        if (folder / "summary.json").is_file():
            links.append(f"[{preset}](results-{id.partition('/')[0]}.md#{anchor(f'{id}, preset {preset}')})")
        elif (folder / "result.json").is_file():
            links.append(f"[{preset}](figures.md#{anchor(id)})")
    return ", ".join(links) or "-"


def anchor(heading: str) -> str:
    """The name that a heading gets as the aim of a link."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main() -> None:
    """Write the page."""
    files.write(PAGE, page(PAGE.read_text("utf-8"), every()).encode())


if __name__ == "__main__":
    main()
