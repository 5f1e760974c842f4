"""What the race came to: a table and a few sentences, all of them read from the run folders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...table import Table
from ...tasks import Adding
from ...training import Run
from ..schema import Experiment
from .standing import Standing, listed, seconds

WHERE_AN_LSTM_DOES_AS_WELL = (
    "Where the plain LSTM does as well: over 20 numbers all three need about 400 updates; over 150 it gets there too, "
    "after nearly three times as many as the pLSTM, or just as soon if somebody tells it beforehand to hold on for "
    "longer (chrono initialisation)."
)
ABOUT_THE_FAST_GATE = (
    "The fast gate has no advantage at this length: its paper shows one over 5,000 numbers, which takes a GPU "
    "(remanence run fastgate/adding-5000)."
)


def introduction(experiment: Experiment, standings: Sequence[Standing]) -> list[str]:
    """What the task is, why it is hard, and who races, for somebody who knows nothing of it."""
    first = standings[0]
    task = first.model.task
    assert isinstance(task, Adding)
    guessing, solved = math.sqrt(first.guessing), math.sqrt(first.solved_at)
    counts = [standing.parameters for standing in standings]
    seeds = listed(list(map(str, experiment.seeds)))
    return [
        f"The task: {task.length} random numbers between 0 and 1 go by, one at a time, and two of them are marked, one "
        "in each half. After the last number the model has to say the sum of the two.",
        "Why it is hard: nobody says what to keep. The only lesson is how wrong the sum was, at the very end, and to "
        f"make use of it a model must still hold what it saw up to {task.length} steps before. A memory that fades "
        "a little at every step has lost it by then, and with it the way to learn better.",
        f"Always saying 1 is off by {guessing:.2f}, typically. It counts as solved at {solved:.2f}.",
        f"The race: {', '.join(f'{one.title} ({one.parameters:,} parameters)' for one in standings)}. The counts "
        f"agree within {spread(counts):.1%}. Same rows of numbers, same optimiser, seeds {seeds}, fixed in advance. "
        f"The LSTM and the fast gate forget a share at every step, {forgotten(standings)} before they have learned "
        "anything, and differ in how they can change it; the memory of the pLSTM fades as a power of time, ever more "
        "slowly.",
    ]


def forgotten(standings: Sequence[Standing]) -> str:
    """The share of its memory that an LSTM with forget bias 1 loses per step before it has learned anything."""
    bias = next(float(one.model.layer["forget_bias"]) for one in standings if "forget_bias" in one.model.layer)
    return f"{1 / (1 + math.exp(bias)):.0%}"


def spread(counts: Sequence[int]) -> float:
    """How far counts are apart, as a share."""
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
        "Solved: seeds that got there. Final error: the typical one, on rows that were not trained on.",
        "Seconds: until all seeds of a model had ended, while the other models shared the cores.",
    ]
    return Table("", headings, rows, words=1, notes=notes)


def last(standing: Standing, seed: int) -> int:
    """The last update of a seed that was evaluated."""
    curve = standing.curves[seed]
    return curve[-1][0] if curve else 0


def conclusion(standings: Sequence[Standing]) -> list[str]:
    """Who won, from the numbers alone."""
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
