"""Put the numbers of results/bench into docs/performance.md.

    python docs/performance.py

The page is written by hand but for what stands between `<!-- NAME -->` and `<!-- end -->`: tables, made here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from remanence import bench, files
from remanence.bench import BenchReport
from remanence.table import Table

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "performance.md"
BENCH = DOCS.parent / "results" / "bench"
PLACE = re.compile(r"(<!-- (?P<name>(?!end)[a-z0-9-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
GATES = ("fast", "power_law")
PRECISIONS = ("tf32", "bf16", "full")


class Goal(NamedTuple):
    """A line of the first table."""

    what: str
    least: float
    aim: float
    shape: str
    """What is timed, or the task of the training loop; nothing where replicas are."""
    ratio: str
    """Which one of a timing, of replicas or of the training loop."""
    small: bool = False
    """Whether it is to be small: eight over one."""

    def bound(self, value: float) -> str:
        """A bound in words."""
        return f"under {value:g}" if self.small else f"{value:g}"

    def reached(self, value: float) -> bool:
        """Whether it is what is asked for at least."""
        return value < self.least if self.small else value >= self.least


GOALS = (
    Goal("training, 128 units, copy-200", 0.8, 1.2, "copy-200", "training_ratio"),
    Goal("training, 128 units, copy-1000", 0.8, 1.2, "copy-1000", "training_ratio"),
    Goal("training, 128 units, adding-5000", 0.8, 1.2, "adding-5000", "training_ratio"),
    Goal("training, 256 units", 2.5, 4, "pixel-256", "training_ratio"),
    Goal("training, 512 units", 2.5, 4, "pixel-512", "training_ratio"),
    Goal("training, 716 units", 1, 2, "char-ptb", "training_ratio"),
    Goal("training, 1150 units", 1, 2, "word-ptb", "training_ratio"),
    Goal("inference, 256 units", 3, 5, "pixel-256", "forward_ratio"),
    Goal("inference, 512 units", 3, 5, "pixel-512", "forward_ratio"),
    Goal("memory, 128 units", 1, 1, "copy-1000", "memory_ratio"),
    Goal("memory, 256 units", 1, 1, "pixel-256", "memory_ratio"),
    Goal("memory, 512 units", 1, 1, "pixel-512", "memory_ratio"),
    Goal("memory, 716 units", 1, 1, "char-ptb", "memory_ratio"),
    Goal("memory, 1150 units", 1, 1, "word-ptb", "memory_ratio"),
    Goal("eight layers side by side over one", 2, 1.3, "", "ratio", small=True),
    Goal("the same as a CUDA graph", 2, 1.3, "", "replayed_ratio", small=True),
)
TASKS = ("copy-200", "digits", "frequency")
LOOPS = (
    *(Goal(f"training loop, {task}: eight seeds over one", 2, 1.3, task, "seeds", small=True) for task in TASKS),
    *(Goal(f"training loop, {task}: bare update over it", 0.9, 0.97, task, "ratio") for task in TASKS),
)
MODELS = ("fast", "plstm")
"""What the gates are called in the training loop."""


def main() -> None:
    """Make the tables anew."""
    files.write(PAGE, filled(PAGE.read_text("utf-8")).encode())


def filled(page: str) -> str:
    """The page with every table as the files say."""
    return PLACE.sub(lambda place: f"{place[1]}\n{content(place['name'])}\n\n", page)


def content(name: str) -> str:
    """What belongs into a place."""
    if name == "goals":
        return goals().markdown()
    if name == "profile":
        return profile()
    if name == "h200-layers":
        return every_layer()
    report = bench.load(BENCH / f"{name}.json")
    tables = "\n\n".join(table.markdown() for table in bench.tables(report))
    return f"{where(report.machine)}; took: {report.seconds:.0f} s\n\n    {report.command}\n\n{tables}"


def where(machine: Mapping[str, str]) -> str:
    """The machine in a line."""
    return "; ".join(f"{key}: {value}" for key, value in machine.items() if key != "load")


def goals() -> Table:
    """Goals, and what was measured for them."""
    reports = [bench.load(BENCH / f"h200-{precision}.json") for precision in PRECISIONS]
    training = bench.load(BENCH / "h200-training.json")
    found = [(goal, [measured(goal, report) for report in reports]) for goal in GOALS]
    found += [(goal, [looped(goal, training), NOTHING, NOTHING]) for goal in LOOPS]
    rows = [
        (goal.what, goal.bound(goal.least), goal.bound(goal.aim), *(shown(both, goal.reached) for both in each))
        for goal, each in found
    ]
    return Table("", ("torch over ours", "at least", "aim", "TF32", "bfloat16", "full float32"), rows)


def every_layer() -> str:
    """Every layer at every shape, as `auto` runs it."""
    report = bench.load(BENCH / "h200-layers.json")
    chosen = [row for row in report.timings if row.engine == "auto" and row.training_ratio is not None]
    shapes = list(dict.fromkeys(row.shape for row in chosen))
    found = {(row.layer, row.shape): f"{row.training_ratio:.2f} / {row.forward_ratio:.2f}" for row in chosen}
    layers = dict.fromkeys(row.layer for row in chosen)
    rows = [(layer, *(found.get((layer, shape), "-") for shape in shapes)) for layer in layers]
    headings = ("training / inference", *(f"{shape.name}: {shape.sizes}" for shape in shapes))
    return f"{where(report.machine)}\n\n    {report.command}\n\n{Table('', headings, rows, words=1).markdown()}"


def measured(goal: Goal, report: BenchReport) -> list[float | None]:
    """Of both gates."""
    if not goal.shape:
        eight = {row.layer: getattr(row, goal.ratio) for row in report.replicas if row.count == 8}
        return [eight.get(gate) for gate in GATES]
    found = {row.layer: getattr(row, goal.ratio) for row in report.timings if row.shape.name == goal.shape}
    return [found.get(gate) for gate in GATES]


def looped(goal: Goal, report: BenchReport) -> list[float | None]:
    """The same of the training loop."""
    rows = {(row.layer, row.replicas): row for row in report.programs if row.task == goal.shape}
    if goal.ratio == "seeds":
        return [rows[model, 8].whole_ms / rows[model, 1].whole_ms for model in MODELS]
    return [rows[model, 1].ratio for model in MODELS]


NOTHING: list[float | None] = [None, None]
"""What was not measured, of both gates."""


def shown(values: list[float | None], holds: Callable[[float], bool]) -> str:
    """Both, a miss in bold; a dash if nothing was measured."""
    if all(value is None for value in values):
        return "-"
    texts = [f"{value:.2f}" if value is not None else "-" for value in values]
    return " / ".join(
        text if value is None or holds(value) else f"**{text}**" for value, text in zip(values, texts, strict=True)
    )


def profile() -> str:
    """What a profiler saw."""
    found = json.loads((BENCH / "h200-ncu.json").read_text("utf-8"))
    rows = []
    for kernel in found["kernels"]:
        sizes, stalls = kernel["sizes"], kernel["stalls"]
        step = kernel["microseconds"] / sizes["steps"]
        shape = f"H{sizes['units']} B{sizes['batch']} T{sizes['steps']}"
        if sizes["count"] > 1:
            shape = f"{sizes['count']} of {shape}"
        percents = (f"{kernel[name]:.0f}" for name in PERCENTS)
        rows.append(
            (
                f"{kernel['gate']} {kernel['kernel']}",
                shape,
                f"{step:.2f}",
                *percents,
                *(f"{stalls[name]:.1f}" for name in STALLS),
            )
        )
    headings = ("kernel", "sizes", "us a step", *PERCENTS.values(), *STALLS.values())
    return f"{where(found['machine'])}\n\n    {found['command']}\n\n{Table('', headings, rows, words=2).markdown()}"


PERCENTS = {
    "issue_percent": "issue, %",
    "tensor_percent": "tensor cores, %",
    "transcendental_percent": "exp and 1/x, %",
    "shared_memory_percent": "shared memory, %",
    "dram_percent": "memory, %",
}
STALLS = {
    "wait": "wait: pipeline",
    "short_scoreboard": "shared memory, exp",
    "long_scoreboard": "memory",
    "barrier": "barrier",
}


if __name__ == "__main__":
    main()
