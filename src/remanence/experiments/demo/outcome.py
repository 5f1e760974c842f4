"""The outcome of the race: a table, a few sentences and a plot, all of them read from the run folders."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...table import Table
from ...tasks import Adding
from ...training import Run, files
from ..schema import Experiment
from .standing import Standing, listed, seconds

WHERE_AN_LSTM_DOES_AS_WELL = (
    "Where the plain LSTM does as well: with 20 numbers all three need about 400 updates. With 150 numbers it also "
    "solves the task, after nearly three times as many updates as the pLSTM, or equally fast if it is initialised to "
    "remember for longer (chrono initialisation)."
)
ABOUT_THE_FAST_GATE = (
    "The fast gate has no advantage at this length: its paper shows one with 5,000 numbers, which takes a GPU "
    "(remanence run fastgate/adding-5000)."
)
# Okabe & Ito palette: distinct with every kind of colour vision, and dark enough for text. Every line is labelled too.
COLOURS = ("#0072B2", "#D55E00", "#008A64", "#A84C86")
DASHES = ("-", (0, (5, 1.5)), "-", (0, (2, 1)))
INK, GREY, FAINT = "#333333", "#666666", "#DDDDDD"


def introduction(experiment: Experiment, standings: Sequence[Standing]) -> list[str]:
    """The task, why it is hard and which models race, for a newcomer."""
    first = standings[0]
    task = first.model.task
    assert isinstance(task, Adding)
    guessing, solved = math.sqrt(first.guessing), math.sqrt(first.solved_at)
    counts = [standing.parameters for standing in standings]
    seeds = listed(list(map(str, experiment.seeds)))
    return [
        f"The task: {task.length} random numbers between 0 and 1, read one at a time. Two of them are marked, one in "
        "each half. After the last number the model must output the sum of the two.",
        "Why it is hard: the only training signal is the error of the sum at the very end. To learn from it, the model "
        f"must still remember inputs from up to {task.length} steps before. A memory that fades a little at every step "
        "has lost them by then, and the gradient with them.",
        f"Always predicting 1 is off by {guessing:.2f} (root mean squared error). The task counts as solved at "
        f"{solved:.2f}.",
        f"The race: {', '.join(f'{one.title} ({one.parameters:,} parameters)' for one in standings)}. The counts "
        f"agree within {spread(counts):.1%}. Same sequences, same optimiser, seeds {seeds}, fixed in advance. The LSTM "
        f"and the fast gate forget a fraction at every step, {forgotten(standings)} before training, and differ in how "
        "they can change it; the memory of the pLSTM decays as a power law of time, ever more slowly.",
    ]


def forgotten(standings: Sequence[Standing]) -> str:
    """Fraction of its memory that an LSTM with forget bias 1 loses per step before training."""
    bias = next(float(one.model.layer["forget_bias"]) for one in standings if "forget_bias" in one.model.layer)
    return f"{1 / (1 + math.exp(bias)):.0%}"


def spread(counts: Sequence[int]) -> float:
    """Relative difference between the largest and the smallest count."""
    return max(counts) / min(counts) - 1


def table(standings: Mapping[str, Standing], groups: Mapping[str, Sequence[Run]]) -> Table:
    """The models side by side."""
    headings = ("model", "parameters", "solved", "updates to solve", "final error", "seconds")
    rows = []
    for name, standing in standings.items():
        solved = standing.solved
        updates = [f"{solved[seed]:,}" if seed in solved else f">{last(standing, seed):,}" for seed in standing.curves]
        errors = [f"{math.sqrt(curve[-1][1]):.2f}" if curve else "-" for curve in standing.curves.values()]
        rows.append(
            (
                standing.title,
                f"{standing.parameters:,}",
                f"{len(solved)} of {len(standing.curves)}",
                ", ".join(updates),
                ", ".join(errors),
                f"{max(map(seconds, groups[name])):.0f}",
            )
        )
    notes = [
        "Solved: seeds that solved the task. Final error: root mean squared error on validation sequences.",
        "Seconds: until all seeds of a model had finished, while the other models shared the cores.",
    ]
    return Table("", headings, rows, words=1, notes=notes)


def last(standing: Standing, seed: int) -> int:
    """The last evaluated update of a seed."""
    curve = standing.curves[seed]
    return curve[-1][0] if curve else 0


def conclusion(standings: Sequence[Standing]) -> list[str]:
    """The outcome of the race in one sentence."""
    words = []
    for standing in standings:
        solved, seeds = standing.solved, len(standing.curves)
        if len(solved) == seeds:
            words.append(f"{standing.title} solved it after {listed([f'{at:,}' for at in solved.values()])} updates")
        elif solved:
            words.append(f"{standing.title} solved it with {len(solved)} of {seeds} seeds")
        else:
            words.append(f"{standing.title} was still off by {standing.error:.2f} after {standing.update:,} updates")
    return ["; ".join(words) + "."]


def draw(standings: Sequence[Standing], title: str, path: Path) -> None:
    """Plot the error of every run over its updates.

    Args:
        standings: the models.
        title: title of the plot.
        path: PNG file, written atomically.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib
    from matplotlib.figure import Figure

    look: Any = {
        "font.size": 10,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with matplotlib.rc_context(look):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        axes = figure.subplots()
        first = standings[0]
        last = max((curve[-1][0] for one in standings for curve in one.curves.values() if curve), default=1)
        marks = ((first.guessing, "always predicting 1", -16, "top"), (first.solved_at, "solved", 4, "bottom"))
        for level, words, offset, side in marks:
            error = math.sqrt(level)
            axes.axhline(error, color=GREY, linewidth=1, linestyle=":", zorder=1)
            label = f"{words}: {error:.2f}"
            axes.annotate(
                label, (last, error), (0, offset), textcoords="offset points", ha="right", va=side, color=GREY
            )
        for standing, colour, dashes in zip(standings, COLOURS, DASHES, strict=False):
            for number, curve in enumerate(standing.curves.values()):
                updates = [update for update, _ in curve]
                errors = [math.sqrt(loss) for _, loss in curve]
                name = f"{standing.title}: {legend_label(standing)}" if number == 0 else None
                axes.plot(updates, errors, color=colour, linestyle=dashes, linewidth=2, label=name)
            for seed, update in standing.solved.items():
                error = math.sqrt(dict(standing.curves[seed])[update])
                axes.plot(update, error, "o", color=colour, markersize=7, zorder=3)
        axes.set(xlim=(0, last * 1.02), xlabel="updates", ylabel="error on validation sequences (RMSE)")
        highest = max((loss for one in standings for curve in one.curves.values() for _, loss in curve), default=0.0)
        axes.set_ylim(0, max(1.25 * math.sqrt(first.guessing), 1.1 * math.sqrt(highest)))
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10.5)
        axes.legend(loc="lower left", frameon=False)
        content = io.BytesIO()
        figure.savefig(content, dpi=120, format="png")
    files.write(path, content.getvalue())


def legend_label(standing: Standing) -> str:
    """The legend entry of a model: when it solved the task."""
    solved = standing.solved
    if not solved:
        return "not solved"
    words = f"solved after {listed([f'{update:,}' for update in solved.values()])} updates"
    return words if len(solved) == len(standing.curves) else f"{words}, {len(solved)} of {len(standing.curves)} seeds"
