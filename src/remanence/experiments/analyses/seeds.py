"""Findings about some seeds, added to those about others whose checkpoints may be gone.

Analyses read checkpoints, which are not kept with the results. If seeds are trained at different times or places, each
can only be analysed then and there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ...table import Table
from .by_frequency import frequency_tables, over_all_seeds
from .estimated_timescales import assigned_tables, fits_tables
from .routing import routing_tables
from .trained import Findings
from .word_ablation import word_ablation_tables

Data = dict[str, Any]
Kept = Collection[tuple[str, str, int]]
"""Need, model and seed of runs."""


class Addition(NamedTuple):
    """How the findings of an analysis are added."""

    add: Callable[[Mapping[str, Any], Kept, Mapping[str, Any]], Data]
    """The data of the last, with what the first has about other runs, those that are kept."""
    tables: Callable[[Mapping[str, Any]], list[Table]]
    """The tables of data."""


def by_seed(before: Mapping[str, Any], kept: Kept, after: Mapping[str, Any]) -> Data:
    """Add data by need, model and seed."""
    data: Data = {}
    for need in dict.fromkeys((*before, *after)):
        models = dict.fromkeys((*before.get(need, ()), *after.get(need, ())))
        for name in models:
            old, new = (part.get(need, {}).get(name, {}) for part in (before, after))
            seeds = {seed: found for seed, found in old.items() if (need, name, int(seed)) in kept} | new
            if seeds:
                data.setdefault(need, {})[name] = {seed: seeds[seed] for seed in sorted(seeds, key=int)}
    return data


def of_frequencies(before: Mapping[str, Any], kept: Kept, after: Mapping[str, Any]) -> Data:
    """Add data of `by_frequency`: models by seed, comparisons with the same reference, runs that were left out."""
    data: Data = {}
    for need, new in after.items():
        old = before.get(need, NOTHING)
        models = by_seed({need: old["models"]}, kept, {need: new["models"]})[need]
        compared = [one for one in old["comparisons"] if (need, one["model"], one["seed"]) in kept]
        # A model of which no loss was finite cannot be the reference of new comparisons: then there are none.
        reference = new["reference"] if new["comparisons"] or not compared else old["reference"]
        compared = (compared if old["reference"] == reference else []) + new["comparisons"]
        names = {f"{name} seed {seed}" for _, name, seed in kept}
        data[need] = new | {
            "models": models,
            "over_seeds": over_all_seeds(models),
            "left_out": [name for name in old["left_out"] if name in names] + new["left_out"],
            "reference": reference,
            "comparisons": sorted(compared, key=lambda one: (list(models).index(one["model"]), one["seed"])),
        }
    return data


NOTHING: Data = {"models": {}, "comparisons": [], "left_out": [], "reference": None}
ADDITIONS = {
    "by_frequency": Addition(of_frequencies, frequency_tables),
    "routing": Addition(by_seed, routing_tables),
    "word_ablation": Addition(by_seed, word_ablation_tables),
    "assigned_vs_estimated": Addition(by_seed, assigned_tables),
    "fitted_timescales": Addition(by_seed, fits_tables),
}
"""Analyses whose findings can be added, by name."""


def added(function: str, before: Mapping[str, Any], kept: Kept, after: Mapping[str, Any]) -> Findings | None:
    """Findings of an analysis, and earlier ones about other runs; None if this analysis has no such findings.

    Args:
        function: Name of the analysis.
        before: Data of its earlier findings.
        kept: The other runs that they are about, of which there may be more.
        after: Data of its later findings.
    """
    if function not in ADDITIONS:
        return None
    data = ADDITIONS[function].add(before, kept, after)
    return Findings(data, ADDITIONS[function].tables(data))
