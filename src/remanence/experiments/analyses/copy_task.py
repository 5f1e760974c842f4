"""Analyses of models that were trained on the copy task: other delays, later-reset units, ablation of units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy

from ... import analysis
from ...gates import PowerLaw
from ...table import Table, mean_and_std
from ...tasks import Copy, Task
from .trained import Findings, Trained, by_need_and_model


def generalisation(runs: Sequence[Trained], *, delays: list[int], sequences: int = 1000) -> Findings:
    """Accuracy of every model at delays other than the one it was trained on (pLSTM figure A.2)."""
    data: dict[str, Any] = {}
    tables = []
    for need, models in by_need_and_model(runs).items():
        found = {name: at_delays(group, delays, sequences) for name, group in models.items()}
        data[need] = {name: {"seeds": [run.seed for run in models[name]], **one.plain()} for name, one in found.items()}
        rows = [(name, str(len(models[name])), *cells_at_delays(one)) for name, one in found.items()]
        headings = ("model", "seeds", *map(str, delays))
        tables.append(Table(f"accuracy in %, trained on {need}, by test delay", headings, rows))
    return Findings(data, tables)


def at_delays(group: Sequence[Trained], delays: list[int], sequences: int) -> analysis.Generalisation:
    """Evaluate all seeds of one model."""
    task = group[0].task
    if not isinstance(task, Copy):
        raise ValueError(f"expected models trained on copy, got task {task.name!r}")

    def task_at(delay: int) -> Task:
        return replace(task, delay=delay)

    return analysis.generalisation([run.model() for run in group], task_at, delays, sequences=sequences)


def cells_at_delays(found: analysis.Generalisation) -> list[str]:
    """Mean and standard deviation over seeds at every delay."""
    return [mean_and_std([100 * value for value in column], 1) for column in found.scores[found.goal].T.tolist()]


def kt_and_p(runs: Sequence[Trained], *, sequences: int = 100, share: float = 0.5, least: float = 0.99) -> Findings:
    """Later-reset units and exponents of every model whose validation accuracy is at least `least`."""
    good = [run for run in runs if run.accuracy >= least]
    bad = [run for run in runs if run.accuracy < least]
    ages = {run: analysis.ages_and_resets(run.model(), run.task, sequences=sequences, share=share) for run in good}
    compared = compare_exponents(ages)
    left_out = f"{len(bad)} of {len(runs)} models are left out: their validation accuracy is below {least:g}"
    headings = ("trained on", "seed", "later-reset units", "mean p", "mean p of these", "units with p < 0.5")
    rows = [ages_row(run, one) for run, one in ages.items()]
    tables = [Table("later-reset units and exponents", headings, rows, notes=[left_out] if bad else [])]
    if compared:
        tables.append(comparison_table(compared))
    first = {run.need: run for run in reversed(good)}
    data = {
        "models": [ages_found(run, one, with_example=first[run.need] is run) for run, one in ages.items()],
        "comparisons": compared,
        "left_out": [run.who for run in bad],
    }
    return Findings(data, tables)


def compare_exponents(ages: Mapping[Trained, analysis.UnitAges]) -> list[dict[str, Any]]:
    """The exponents of the first two needs, seed by seed. Models of one seed start with the same exponents."""
    needs = list(dict.fromkeys(run.need for run in ages))
    if len(needs) < 2:
        return []
    first, second = ({run.seed: one.p for run, one in ages.items() if run.need == need} for need in needs[:2])
    return [
        {
            "needs": needs[:2],
            "seed": seed,
            **analysis.two_samples(first[seed], second[seed]).plain(),
            "correlation": float(numpy.corrcoef(first[seed], second[seed])[0, 1]),
        }
        for seed in first
        if seed in second
    ]


def ages_found(run: Trained, ages: analysis.UnitAges, with_example: bool) -> dict[str, Any]:
    """What was found for a model. Only the first of every delay has an example sequence; the figure shows those."""
    found = {**run.who, "later_share": len(ages.later) / len(ages.p), **ages.plain()}
    return {name: value for name, value in found.items() if with_example or not name.startswith("example_")}


def ages_row(run: Trained, ages: analysis.UnitAges) -> tuple[str, ...]:
    """Table row of one model."""
    of_later = "-" if ages.p_later_mean is None else f"{ages.p_later_mean:.2f}"
    later = f"{len(ages.later)} of {len(ages.p)}"
    return run.need, str(run.seed), later, f"{ages.p_mean:.2f}", of_later, str(ages.p_below_half)


def comparison_table(compared: Sequence[Mapping[str, Any]]) -> Table:
    """One row per t test."""
    title = "exponents p of two models compared (Student's t test, correlation over units)"
    headings = ("", "seed", "means", "t", "p value", "Cohen's d", "correlation")
    return Table(title, headings, [comparison_row(one) for one in compared])


def comparison_row(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Table row of one t test."""
    means = " and ".join(f"{mean:.2f}" for mean in found["means"])
    numbers = f"{found['t']:.1f}", f"{found['p_value']:.2g}", f"{found['cohens_d']:.2f}", f"{found['correlation']:.2f}"
    return " and ".join(found["needs"]), str(found["seed"]), means, *numbers


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
    """Accuracy as units are silenced in random order; for pLSTMs also with later-reset units first (pLSTM figure 5)."""
    shared: dict[str, Any] = {"step": step, "orders": orders, "sequences": sequences, "where": where}
    data: dict[str, Any] = {}
    tables = []
    for need, models in by_need_and_model(runs).items():
        curves: Curves = {}
        for name, group in models.items():
            for run in group:
                add_curves(curves, name, run, ablated, shared)
        data[need] = {name: {str(seed): one.plain() for seed, one in own.items()} for name, own in curves.items()}
        tables.append(ablation_table(f"accuracy in %, {need}, by number of silenced units", curves))
    return Findings(data, tables)


def add_curves(curves: Curves, name: str, run: Trained, ablated: int, shared: dict[str, Any]) -> None:
    """Add the curve of one model; for a pLSTM also the one with later-reset units first."""
    model = run.model()
    ablated = min(ablated, model.layer.hidden_size)
    random = analysis.unit_ablation(model, run.task, seed=run.seed, ablated=ablated, **shared)
    curves.setdefault(name, {})[run.seed] = random
    if isinstance(getattr(model.layer, "gate", None), PowerLaw):
        later = analysis.later_reset_units(model, run.task)[:ablated]
        first = analysis.unit_ablation(model, run.task, seed=run.seed, ablated=ablated, first=later, **shared)
        curves.setdefault(f"{name}, later-reset first", {})[run.seed] = first


def ablation_table(title: str, curves: Curves) -> Table:
    """One row per curve, with about six of its points."""
    counts = next(iter(next(iter(curves.values())).values())).counts.tolist()
    every = max(1, (len(counts) - 1) // 5)
    shown = sorted({*range(0, len(counts), every), len(counts) - 1})

    def cell(own: dict[int, analysis.UnitAblation], at: int) -> str:
        return mean_and_std([100 * float(one.scores[one.goal][:, at].mean()) for one in own.values()], 1)

    rows = [(name, str(len(own)), *(cell(own, at) for at in shown)) for name, own in curves.items()]
    note = "+-: over seeds; the score of a seed is its mean over orders of silencing."
    return Table(title, ("model", "seeds", *(str(counts[at]) for at in shown)), rows, notes=[note])
