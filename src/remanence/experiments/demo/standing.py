"""Progress of a model in the race."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...training import Run
from ...training.directory import read_result
from ...training.files import read_lines
from ..models import count_parameters
from ..schema import Experiment, Model

TITLES = {"lstm": "LSTM", "fast": "fast-gate LSTM", "plstm": "pLSTM"}
"""Display names of the models."""


@dataclass
class Standing:
    """One model with all evaluations of its seeds."""

    model: Model
    parameters: int
    solved_at: float
    """Loss at which the task counts as solved."""
    curves: dict[int, list[tuple[int, float]]]
    """Update and validation loss by seed."""
    update: int = 0
    """Number of updates done."""
    ended: set[int] = field(default_factory=set)
    """Seeds that have finished."""

    @property
    def title(self) -> str:
        """Its display name."""
        return TITLES.get(self.model.name, self.model.name)

    @property
    def guessing(self) -> float:
        """The loss of a model that has learned nothing."""
        return self.model.task.references["loss"]

    @property
    def losses(self) -> list[float]:
        """The latest loss of every seed that has been evaluated."""
        return [curve[-1][1] for curve in self.curves.values() if curve]

    @property
    def learned(self) -> float:
        """Fraction of the guessing error that is gone, mean over seeds: 0 for guessing, 1 for no error."""
        shares = [min(1.0, max(0.0, 1 - loss / self.guessing)) for loss in self.losses]
        return sum(shares) / len(shares) if shares else 0.0

    @property
    def error(self) -> float:
        """Typical error: root mean squared error over seeds."""
        return math.sqrt(sum(self.losses) / len(self.losses)) if self.losses else math.sqrt(self.guessing)

    @property
    def solved(self) -> dict[int, int]:
        """Update at which each seed solved the task, for the seeds that did."""
        first = {
            seed: next((update for update, loss in curve if loss <= self.solved_at), None)
            for seed, curve in self.curves.items()
        }
        return {seed: update for seed, update in first.items() if update is not None}

    def add(self, seed: int, line: dict[str, Any]) -> None:
        """Add an evaluation."""
        loss = line["validation"]["loss"]
        if loss is not None:
            self.curves[seed].append((line["update"], loss))
        self.update = max(self.update, line["update"])


def read(experiment: Experiment, runs: Sequence[Run]) -> Standing:
    """Read the progress of a model from its run folders."""
    model = experiment.models[runs[0].model_name]
    level = experiment.report.reach
    if level is None:
        raise ValueError(f"expected {experiment.id} to have report.reach, got none")
    standing = Standing(model, count_parameters(model), level, {run.seed: [] for run in runs})
    for run in runs:
        for line in read_lines(run.directory, "metrics.jsonl"):
            standing.add(run.seed, line)
        if read_result(run.directory) is not None:
            standing.ended.add(run.seed)
    return standing


def seconds(run: Run) -> float:
    """Training time of a run, summed over interruptions."""
    return float(sum(line.get("seconds", 0.0) for line in read_lines(run.directory, "times.jsonl")))


def listed(words: Sequence[str]) -> str:
    """Join words as in "600, 650 and 700"."""
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)
