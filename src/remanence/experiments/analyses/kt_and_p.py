"""Later-reset units and exponents of trained pLSTMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import analysis
from ...table import Table
from .trained import Findings, Trained


def kt_and_p(runs: Sequence[Trained], *, sequences: int = 100, share: float = 0.5, least: float = 0.99) -> Findings:
    """Later-reset units and exponents of every model whose validation accuracy is at least `least`."""
    good = [run for run in runs if run.accuracy >= least]
    bad = [run for run in runs if run.accuracy < least]
    ages = {run: analysis.ages_and_resets(run.model(), run.task, sequences=sequences, share=share) for run in good}
    compared = compare_exponents(ages)
    left_out = f"{len(bad)} of {len(runs)} models are left out: their validation accuracy is below {least:g}"
    headings = ("trained on", "seed", "later-reset units", "mean p", "mean p of these", "units with p < 0.5")
    rows = [row(run, one) for run, one in ages.items()]
    tables = [Table("later-reset units and exponents", headings, rows, notes=[left_out] if bad else [])]
    if compared:
        headings = ("", "seed", "means", "t", "p value", "Cohen's d")
        rows = [comparison(one) for one in compared]
        tables.append(Table("exponents p of two models compared (Student's t test)", headings, rows))
    data = {
        "models": [{**run.who, **one.plain()} for run, one in ages.items()],
        "comparisons": compared,
        "left_out": [run.who for run in bad],
    }
    return Findings(data, tables)


def compare_exponents(ages: Mapping[Trained, analysis.UnitAges]) -> list[dict[str, Any]]:
    """The exponents of the first two needs, seed by seed."""
    needs = list(dict.fromkeys(run.need for run in ages))
    if len(needs) < 2:
        return []
    first, second = ({run.seed: one.p for run, one in ages.items() if run.need == need} for need in needs[:2])
    return [
        {"needs": needs[:2], "seed": seed, **analysis.two_samples(first[seed], second[seed]).plain()}
        for seed in first
        if seed in second
    ]


def row(run: Trained, ages: analysis.UnitAges) -> tuple[str, ...]:
    """One model."""
    of_later = "-" if ages.p_later_mean is None else f"{ages.p_later_mean:.2f}"
    later = f"{len(ages.later)} of {len(ages.p)}"
    return run.need, str(run.seed), later, f"{ages.p_mean:.2f}", of_later, str(ages.p_below_half)


def comparison(found: Mapping[str, Any]) -> tuple[str, ...]:
    """One test."""
    means = " and ".join(f"{mean:.2f}" for mean in found["means"])
    numbers = f"{found['t']:.1f}", f"{found['p_value']:.2g}", f"{found['cohens_d']:.2f}"
    return " and ".join(found["needs"]), str(found["seed"]), means, *numbers
