"""Models trained on one delay, tested on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ... import analysis
from ...table import Table, mean_and_std
from ...tasks import Copy, Task
from .trained import Findings, Trained, by_need_and_model


def generalisation(runs: Sequence[Trained], *, delays: list[int], sequences: int = 1000) -> Findings:
    """Accuracy of every model at delays it was not trained on."""
    data: dict[str, Any] = {}
    tables = []
    for need, models in by_need_and_model(runs).items():
        found = {name: at_delays(group, delays, sequences) for name, group in models.items()}
        data[need] = {name: {"seeds": [run.seed for run in models[name]], **one.plain()} for name, one in found.items()}
        rows = [(name, str(len(models[name])), *cells(one)) for name, one in found.items()]
        headings = ("model", "seeds", *map(str, delays))
        tables.append(Table(f"accuracy in %, trained on {need}, by delay of the test", headings, rows))
    return Findings(data, tables)


def at_delays(group: Sequence[Trained], delays: list[int], sequences: int) -> analysis.Generalisation:
    """The seeds of one model, side by side."""
    task = group[0].task
    if not isinstance(task, Copy):
        raise ValueError(f"expected models trained on copy, got task {task.name!r}")

    def task_at(delay: int) -> Task:
        return replace(task, delay=delay)

    return analysis.generalisation([run.model() for run in group], task_at, delays, sequences=sequences)


def cells(found: analysis.Generalisation) -> list[str]:
    """Mean and standard deviation over seeds at every delay."""
    return [mean_and_std([100 * value for value in column], 1) for column in found.scores[found.goal].T.tolist()]
