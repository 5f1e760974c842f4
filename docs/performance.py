"""Write the tables of docs/performance.md and docs/developers/*.md from the files in results/bench.

    python docs/performance.py

Each table is between `<!-- NAME -->` and `<!-- end -->`. The rest of the pages is written manually.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

from remanence import bench, files
from remanence.bench import BenchReport
from remanence.bench.layers import QUOTED
from remanence.table import Table

DOCS = Path(__file__).resolve().parent
PAGES = (DOCS / "performance.md", *sorted((DOCS / "developers").glob("*.md")))
BENCH = DOCS.parent / "results" / "bench"
PLACE = re.compile(r"(<!-- (?P<name>(?!end)[a-z0-9-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
GATES = ("fast", "power_law")
PRECISIONS = {"tf32": "TF32", "bf16": "bfloat16", "full": "full float32"}
EVERY_LAYER = {"layers": "h200-tf32", "quoted": "h200-quoted"}
"""Files of an H200 whose table has a row per layer, by the name of that table."""
CPUS = {"two-cpu-cores": "2 ARM cores", "two-x86-cores": "2 x86 cores", "sixteen-x86-cores": "16 x86 cores"}
"""Files with a table of the page for users, and what their machines are called there."""
MIDDLE = (128, 128)
"""Sequences and units of the shape that this table leaves out."""


class Goal(NamedTuple):
    """A row of the table of goals."""

    what: str
    least: float
    aim: float
    shape: str
    """The shape that is timed, or the task of the training loop; empty for replicas."""
    ratio: str
    """The ratio of a timing, of replicas or of the training loop."""
    small: bool = False
    """Whether smaller is better: the time of eight over that of one."""
    files: tuple[str, ...] = ("h200-tf32",)
    """Runs of the benchmark in TF32; of several, the median counts."""

    def bound(self, value: float) -> str:
        """A bound as text."""
        return f"under {value:g}" if self.small else f"{value:g}"

    def reached(self, value: float) -> bool:
        """Whether a value reaches the target."""
        return value < self.least if self.small else value >= self.least


class LayerGoal(NamedTuple):
    """A row of the table of goals for single layers, in TF32."""

    what: str
    layers: tuple[str, ...]
    shapes: tuple[str, ...]
    """Names of the shapes; empty for all."""
    least: float
    aim: float | None = None
    """None if it is to be as fast as the other layers."""
    inference: bool = False
    files: tuple[str, ...] = ("h200-tf32",)
    """Runs of the benchmark; of several, the median of each layer counts."""


SHORT_STEPS = ("h200-tf32", *(f"h200-copy-200-{run}" for run in (1, 2, 3)))
"""Runs with the shape whose time depends on the host."""
GOALS = (
    Goal("training, 128 units, copy-200", 0.8, 1.2, "copy-200", "training_ratio", files=SHORT_STEPS),
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
    Goal("eight layers in one launch over one", 2, 1.3, "", "ratio", small=True, files=SHORT_STEPS),
    Goal("the same, replayed from a CUDA graph", 2, 1.3, "", "replayed_ratio", small=True, files=SHORT_STEPS),
)
TASKS = ("copy-200", "digits", "frequency")
LOOPS = (
    *(Goal(f"training loop, {task}: eight seeds over one", 2, 1.3, task, "seeds", small=True) for task in TASKS),
    *(Goal(f"training loop, {task}: bare update over the whole", 0.9, 0.97, task, "ratio") for task in TASKS),
)
LSTMS = ("sigmoid", "fast", "softsign", "refine", "ur", "power_law")
FIVE_BLOCKS, PROJECTED = ("refine", "ur"), ("proj-fast", "proj-power_law")
LAYER_GOALS = (
    LayerGoal("refine and ur, 128 units", FIVE_BLOCKS, ("copy-1000", "adding-5000"), 1.5),
    LayerGoal("refine and ur, copy-200", FIVE_BLOCKS, ("copy-200",), 1.5, files=SHORT_STEPS),
    LayerGoal("refine and ur, 256 and 512 units", FIVE_BLOCKS, ("pixel-256", "pixel-512"), 5),
    LayerGoal("refine and ur, 716 and 1150 units", FIVE_BLOCKS, ("char-ptb", "word-ptb"), 1.5),
    LayerGoal("refine and ur, inference", FIVE_BLOCKS, (), 1.2, inference=True),
    LayerGoal("projections", PROJECTED, (), 1, 2),
    LayerGoal("Phased LSTM", ("phased",), (), 1, 2),
    LayerGoal("NRU", ("nru",), (), 0.3, 1),
    LayerGoal("copy-200, bound by the host: all gates of the LSTM", LSTMS, ("copy-200",), 1.2, 2, files=SHORT_STEPS),
)
MODELS = ("fast", "plstm")
"""The names of the gates in the training loop."""


def main() -> None:
    """Write all pages."""
    for page in PAGES:
        files.write(page, filled(page.read_text("utf-8")).encode())


def filled(page: str) -> str:
    """The page with current tables."""
    return PLACE.sub(lambda place: f"{place[1]}\n{content(place['name'])}\n\n", page)


def content(name: str) -> str:
    """The text of a place."""
    if name == "goals":
        return goals().markdown()
    if name == "layer-goals":
        return layer_goals().markdown()
    if name == "gpu":
        return gpu().markdown()
    if name == "cpu":
        return cpu().markdown()
    if name == "profile":
        return profile()
    if name in EVERY_LAYER:
        return every_layer(report_of(EVERY_LAYER[name]), name == "quoted").markdown()
    report = report_of(name)
    chosen = [every_layer(report)] if name == EVERY_LAYER["quoted"] else bench.tables(report)
    tables = "\n\n".join(table.markdown() for table in chosen)
    return f"{where(report.machine)}; took: {report.seconds:.0f} s\n\n    {report.command}\n\n{tables}"


@cache
def report_of(file: str) -> BenchReport:
    """A file of results/bench, read once."""
    return bench.load(BENCH / f"{file}.json")


def where(machine: Mapping[str, str]) -> str:
    """The machine in one line."""
    return "; ".join(f"{key}: {value}" for key, value in machine.items() if key != "load")


def gpu() -> Table:
    """Both gates at every shape, as `auto` runs them."""
    reports = {name: report_of(f"h200-{name}") for name in PRECISIONS}
    shapes = dict.fromkeys(row.shape for row in reports["tf32"].timings)
    rows = [
        (f"{shape.name}: {shape.sizes}", *(both(reports[name], shape.name, ratio) for _, name, ratio in COLUMNS))
        for shape in shapes
    ]
    return Table("", ("torch over ours", *(f"{what}, {PRECISIONS[name]}" for what, name, _ in COLUMNS)), rows, words=1)


COLUMNS = (
    *(("training", name, "training_ratio") for name in PRECISIONS),
    *(("inference", name, "forward_ratio") for name in ("tf32", "bf16")),
    *(("memory", name, "memory_ratio") for name in ("tf32", "bf16")),
)


def both(report: BenchReport, shape: str, ratio: str) -> str:
    """A ratio of both gates at a shape; a dash if it was not measured."""
    return shown(measured(Goal("", 0, 0, shape, ratio), report), lambda _: True)


def cpu() -> Table:
    """Every layer on every CPU at the smallest and the largest shape: training / inference."""
    reports = {label: report_of(name) for name, label in CPUS.items()}
    timings = [(label, row) for label, report in reports.items() for row in report.timings if row.engine == "auto"]
    found = {
        (row.layer, label, row.shape): f"{row.training_ratio:.2f} / {row.forward_ratio:.2f}" for label, row in timings
    }
    places = dict.fromkeys((label, row.shape) for label, row in timings if (row.shape.batch, row.shape.units) != MIDDLE)
    layers = dict.fromkeys(row.layer for _, row in timings)
    rows = [(layer, *(found.get((layer, *place), "-") for place in places)) for layer in layers]
    headings = (f"{label}, B{shape.batch} H{shape.units}" for label, shape in places)
    return Table("", ("training / inference", *headings), rows, words=1)


def goals() -> Table:
    """Goals and measured values."""
    training = report_of("h200-training")
    others = [(f"h200-{precision}",) for precision in PRECISIONS if precision != "tf32"]
    found = [(goal, [typical(goal, files) for files in (goal.files, *others)]) for goal in GOALS]
    found += [(goal, [looped(goal, training), NOTHING, NOTHING]) for goal in LOOPS]
    rows = [
        (goal.what, goal.bound(goal.least), goal.bound(goal.aim), *(shown(both, goal.reached) for both in each))
        for goal, each in found
    ]
    return Table("", ("torch over ours", "at least", "aim", "TF32", "bfloat16", "full float32"), rows)


def layer_goals() -> Table:
    """Goals for layers, and the smallest and largest ratio over their shapes."""
    rows = []
    for goal in LAYER_GOALS:
        ratios: dict[tuple[str, str], list[float]] = {}
        for file in goal.files:
            for row in report_of(file).timings:
                ratio = row.forward_ratio if goal.inference else row.training_ratio
                wanted = row.layer in goal.layers and (row.shape.name in goal.shapes or not goal.shapes)
                if wanted and row.engine == "auto" and ratio is not None:
                    ratios.setdefault((row.layer, row.shape.name), []).append(ratio)
        found = [median(values) for values in ratios.values()]
        text = f"{min(found):.2f} to {max(found):.2f}"
        aim = "as the others" if goal.aim is None else f"{goal.aim:g}"
        rows.append((goal.what, f"{goal.least:g}", aim, text if min(found) >= goal.least else f"**{text}**"))
    return Table("", ("torch over ours", "at least", "aim", "measured"), rows)


def every_layer(report: BenchReport, quoted: bool = False) -> Table:
    """Every layer, or those that the papers quote, at every shape with the engine `auto`."""
    chosen = [row for row in report.timings if row.engine == "auto" and row.training_ratio is not None]
    chosen = [row for row in chosen if row.layer in QUOTED or not quoted]
    shapes = list(dict.fromkeys(row.shape for row in chosen))
    found = {(row.layer, row.shape): f"{row.training_ratio:.2f} / {row.forward_ratio:.2f}" for row in chosen}
    layers = dict.fromkeys(row.layer for row in chosen)
    rows = [(layer, *(found.get((layer, shape), "-") for shape in shapes)) for layer in layers]
    return Table("", ("training / inference", *(f"{shape.name}: {shape.sizes}" for shape in shapes)), rows, words=1)


def typical(goal: Goal, files: tuple[str, ...]) -> list[float | None]:
    """The median over some runs of a ratio of both gates; None if one of them did not measure it."""
    runs = zip(*(measured(goal, report_of(file)) for file in files), strict=True)
    return [None if None in values else median(value for value in values if value is not None) for values in runs]


def measured(goal: Goal, report: BenchReport) -> list[float | None]:
    """A ratio of both gates."""
    if not goal.shape:
        eight = {row.layer: getattr(row, goal.ratio) for row in report.replicas if row.count == 8}
        return [eight.get(gate) for gate in GATES]
    found = {row.layer: getattr(row, goal.ratio) for row in report.timings if row.shape.name == goal.shape}
    return [found.get(gate) for gate in GATES]


def looped(goal: Goal, report: BenchReport) -> list[float | None]:
    """A ratio of both models in the training loop."""
    rows = {(row.layer, row.replicas): row for row in report.programs if row.task == goal.shape}
    if goal.ratio == "seeds":
        return [rows[model, 8].whole_ms / rows[model, 1].whole_ms for model in MODELS]
    return [rows[model, 1].ratio for model in MODELS]


NOTHING: list[float | None] = [None, None]
"""Not measured, for both gates."""


def shown(values: list[float | None], holds: Callable[[float], bool]) -> str:
    """Both values, missed targets in bold; a dash if neither was measured."""
    if all(value is None for value in values):
        return "-"
    texts = [f"{value:.2f}" if value is not None else "-" for value in values]
    return " / ".join(
        text if value is None or holds(value) else f"**{text}**" for value, text in zip(values, texts, strict=True)
    )


def profile() -> str:
    """The table of the profiler."""
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
