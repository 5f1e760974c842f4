"""Input and output of analyses: finished runs and findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ...models import LanguageModel, SequenceModel
from ...table import Table
from ...tasks import Task
from ...training.files import read_lines
from ..loading import load_model
from ..models import from_description, read_description


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished run that an analysis reads."""

    directory: Path
    need: str
    """The name that the analysis uses for its experiment."""
    model_name: str
    seed: int
    result: Mapping[str, Any]
    device: torch.device

    @cached_property
    def task(self) -> Task:
        """The task it was trained on."""
        return from_description(read_description(self.directory)).task

    @property
    def accuracy(self) -> float:
        """Best validation accuracy."""
        return float((self.result["best"] or {}).get("accuracy") or 0.0)

    def model(self) -> SequenceModel:
        """The model with its best weights, for a task other than language modelling."""
        model = load_model(self.directory, self.device)
        if not isinstance(model, SequenceModel):
            raise ValueError(f"expected a recurrent layer with a read-out, got the language model of {self.directory}")
        return model

    def language_model(self) -> LanguageModel:
        """The language model with its best weights."""
        model = load_model(self.directory, self.device)
        if not isinstance(model, LanguageModel):
            raise ValueError(f"expected a language model, got a layer with a read-out in {self.directory}")
        return model

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return read_lines(self.directory, "metrics.jsonl")

    @property
    def who(self) -> dict[str, Any]:
        """Need, model and seed as plain data."""
        return {"need": self.need, "model": self.model_name, "seed": self.seed}


@dataclass(frozen=True)
class Findings:
    """The result of an analysis or simulation."""

    data: dict[str, Any]
    """Plain data for the result file."""
    tables: list[Table]

    def plain(self) -> dict[str, Any]:
        """Tables and data as they are in the result file."""
        tables = [
            {
                "title": one.title,
                "headings": list(one.headings),
                "rows": [list(row) for row in one.rows],
                "words": one.words,
                "text": one.text,
                "notes": list(one.notes),
            }
            for one in self.tables
        ]
        return {"tables": tables, "found": self.data}


def in_order(runs: Iterable[Trained]) -> list[Trained]:
    """Runs sorted so that the seeds of a model, and the models of a need, are together."""
    return [run for models in by_need_and_model(runs).values() for group in models.values() for run in group]


def keep(data: dict[str, Any], run: Trained, found: Any) -> None:
    """Store the findings of a run in `data` by need, model and seed."""
    data.setdefault(run.need, {}).setdefault(run.model_name, {})[str(run.seed)] = found


def number(value: float | None) -> float:
    """A number of plain data, where None stands for one that is not finite."""
    return float("nan") if value is None else value


def by_run(data: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Any]]:
    """Need, model, seed and findings of every run, from data that `keep` stored."""
    for need, models in data.items():
        for name, seeds in models.items():
            for seed, found in seeds.items():
                yield need, name, seed, found


def by_need_and_model(runs: Iterable[Trained]) -> dict[str, dict[str, list[Trained]]]:
    """Group runs by need and model."""
    groups: dict[str, dict[str, list[Trained]]] = {}
    for run in runs:
        groups.setdefault(run.need, {}).setdefault(run.model_name, []).append(run)
    return groups
