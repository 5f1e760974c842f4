"""How far a model is."""

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
"""What models are called here."""


@dataclass
class Standing:
    """One model: every evaluation of each of its seeds."""

    model: Model
    parameters: int
    solved_at: float
    """The loss from which on the task counts as solved."""
    curves: dict[int, list[tuple[int, float]]]
    """Update and validation loss by seed."""
    update: int = 0
    """Updates that are done."""
    ended: set[int] = field(default_factory=set)
    """Seeds that have ended."""

    @property
    def title(self) -> str:
        """Its name for people."""
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
        """The share of the error of guessing that is gone: 0 for guessing, 1 for always right; the mean over seeds."""
        shares = [min(1.0, max(0.0, 1 - loss / self.guessing)) for loss in self.losses]
        return sum(shares) / len(shares) if shares else 0.0

    @property
    def error(self) -> float:
        """How far answers are off, typically: the root of the mean squared error over seeds."""
        return math.sqrt(sum(self.losses) / len(self.losses)) if self.losses else math.sqrt(self.guessing)

    @property
    def solved(self) -> dict[int, int]:
        """The update at which each seed that has solved it did so."""
        first = {
            seed: next((update for update, loss in curve if loss <= self.solved_at), None)
            for seed, curve in self.curves.items()
        }
        return {seed: update for seed, update in first.items() if update is not None}

    def add(self, seed: int, line: dict[str, Any]) -> None:
        """A new evaluation."""
        loss = line["validation"]["loss"]
        if loss is not None:
            self.curves[seed].append((line["update"], loss))
        self.update = max(self.update, line["update"])


def read(experiment: Experiment, runs: Sequence[Run]) -> Standing:
    """What the folders of the runs of a model hold."""
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
    """How long a run was trained, over all its stretches."""
    return float(sum(line.get("seconds", 0.0) for line in read_lines(run.directory, "times.jsonl")))


def listed(words: Sequence[str]) -> str:
    """600, 650 and 700."""
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)
