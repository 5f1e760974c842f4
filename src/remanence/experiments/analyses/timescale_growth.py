"""Timescales from the forget biases over the updates of training."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ... import analysis
from ...table import Table
from .trained import Findings, Trained, by_need_and_model


def timescale_growth(runs: Sequence[Trained]) -> Findings:
    """Growth of the timescales of every model during training."""
    data: dict[str, Any] = {}
    tables = []
    headings = ("model", "seeds", "updates", "geometric mean, first", "last", "mean, first", "last")
    for need, models in by_need_and_model(runs).items():
        found = {
            name: {run.seed: analysis.timescale_growth(run.metrics()) for run in group}
            for name, group in models.items()
        }
        data[need] = {name: {str(seed): one.plain() for seed, one in own.items()} for name, own in found.items()}
        rows = [row(name, list(own.values())) for name, own in found.items()]
        title = f"timescales in steps over all units, {need}, at the first and the last evaluation"
        tables.append(Table(title, headings, rows))
    return Findings(data, tables)


def row(name: str, seeds: Sequence[analysis.TimescaleGrowth]) -> tuple[str, ...]:
    """Table row of one model, means over seeds."""
    first = seeds[0].updates
    numbers = [
        f"{statistics.fmean(float(getattr(one, kind)[at]) for one in seeds):.4g}"
        for kind in ("geometric_mean", "mean")
        for at in (0, -1)
    ]
    return name, str(len(seeds)), f"{first[0]} to {first[-1]}", *numbers
