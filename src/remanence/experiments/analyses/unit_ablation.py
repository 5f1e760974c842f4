"""Accuracy as more and more units are silenced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ... import analysis
from ...gates import PowerLaw
from ...table import Table, mean_and_std
from .trained import Findings, Trained, by_need_and_model

Curves = dict[str, dict[int, analysis.UnitAblation]]
"""By name of model, then by seed."""


def unit_ablation(
    runs: Sequence[Trained],
    *,
    ablated: int = 100,
    step: int = 5,
    orders: int = 20,
    sequences: int = 1000,
    where: Literal["everywhere", "head"] = "everywhere",
) -> Findings:
    """Accuracy of every model as it loses units in random orders, and of pLSTMs that lose later-reset units first."""
    shared: dict[str, Any] = {"step": step, "orders": orders, "sequences": sequences, "where": where}
    data: dict[str, Any] = {}
    tables = []
    for need, models in by_need_and_model(runs).items():
        curves: Curves = {}
        for name, group in models.items():
            for run in group:
                add_curves(curves, name, run, ablated, shared)
        data[need] = {name: {str(seed): one.plain() for seed, one in own.items()} for name, own in curves.items()}
        tables.append(table(f"accuracy in %, {need}, by number of silenced units", curves))
    return Findings(data, tables)


def add_curves(curves: Curves, name: str, run: Trained, ablated: int, shared: dict[str, Any]) -> None:
    """The curve of one model; of a pLSTM also that with later-reset units first."""
    model = run.model()
    ablated = min(ablated, model.layer.hidden_size)
    random = analysis.unit_ablation(model, run.task, seed=run.seed, ablated=ablated, **shared)
    curves.setdefault(name, {})[run.seed] = random
    if isinstance(getattr(model.layer, "gate", None), PowerLaw):
        later = analysis.later_reset_units(model, run.task)[:ablated]
        first = analysis.unit_ablation(model, run.task, seed=run.seed, ablated=ablated, first=later, **shared)
        curves.setdefault(f"{name}, later-reset first", {})[run.seed] = first


def table(title: str, curves: Curves) -> Table:
    """A row for every curve, with about six of its points."""
    counts = next(iter(next(iter(curves.values())).values())).counts.tolist()
    every = max(1, (len(counts) - 1) // 5)
    shown = sorted({*range(0, len(counts), every), len(counts) - 1})

    def cell(own: dict[int, analysis.UnitAblation], at: int) -> str:
        return mean_and_std([100 * value for one in own.values() for value in one.scores[one.goal][:, at].tolist()], 1)

    rows = [(name, str(len(own)), *(cell(own, at) for at in shown)) for name, own in curves.items()]
    return Table(title, ("model", "seeds", *(str(counts[at]) for at in shown)), rows)
