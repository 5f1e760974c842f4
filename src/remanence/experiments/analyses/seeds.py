"""Findings about some seeds, added to those about others whose checkpoints may be gone.

Analyses read checkpoints, which are not kept with the results. If seeds are trained at different times or places, each
can only be analysed then and there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...table import Table
from .by_frequency import frequency_tables, with_earlier_seeds
from .estimated_timescales import assigned_tables, fits_tables
from .routing import routing_tables
from .trained import Findings
from .word_ablation import word_ablation_tables

Data = dict[str, Any]


class Addition(NamedTuple):
    """How the findings of an analysis are added."""

    add: Callable[[Mapping[str, Any], Mapping[str, Any]], Data]
    """The data of the second, with the seeds that only the first has."""
    tables: Callable[[Mapping[str, Any]], list[Table]]
    """The tables of data."""


def by_seed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Data:
    """Add data by need, model and seed."""
    data: Data = {}
    for need in dict.fromkeys((*before, *after)):
        old, new = before.get(need, {}), after.get(need, {})
        data[need] = {
            name: dict(sorted((old.get(name, {}) | new.get(name, {})).items(), key=lambda entry: int(entry[0])))
            for name in dict.fromkeys((*old, *new))
        }
    return data


ADDITIONS = {
    "by_frequency": Addition(with_earlier_seeds, frequency_tables),
    "routing": Addition(by_seed, routing_tables),
    "word_ablation": Addition(by_seed, word_ablation_tables),
    "assigned_vs_estimated": Addition(by_seed, assigned_tables),
    "fitted_timescales": Addition(by_seed, fits_tables),
}
"""Analyses whose findings can be added, by name."""


def added(function: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Findings | None:
    """The findings `after` with the seeds that only `before` has; None if this analysis has no such findings.

    Args:
        function: Name of the analysis.
        before: Data of its earlier findings.
        after: Data of its later ones.
    """
    if function not in ADDITIONS:
        return None
    data = ADDITIONS[function].add(before, after)
    return Findings(data, ADDITIONS[function].tables(data))
