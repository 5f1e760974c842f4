"""Forget values of all units over a piece of text (multi-timescale paper, figure 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..figure import Axis, Figure, Heat, Panel
from ..files import ResultFiles
from .pieces import few, figure, short

LABELS = 14
"""Words that are written along a map."""
ROWS = 6


def forget_maps(files: ResultFiles, statement: str) -> list[Figure]:
    """A heat map for every layer of every model."""
    panels = [
        heat_map(f"{need}, {model}: layer {number}", found["words"], layer)
        for need, models in files.expect_found().items()
        for model, found in models.items()
        for number, layer in enumerate(found["layers"], 1)
    ]
    note = "Rows are groups of units, those that keep most on top; words are read from left to right."
    return [figure(files, statement, panels, columns=3, note=note)]


def heat_map(title: str, words: Sequence[str], layer: Mapping[str, Any]) -> Panel:
    """One layer; rows are labelled with timescales where these were set."""
    shown = set(few(len(words), LABELS))
    values, assigned = layer["values"], layer["assigned"]
    labelled = set(few(len(values), ROWS))
    counted = [sum(layer["units"][:at]) for at in range(len(values))]
    rows = [
        "" if at not in labelled else str(counted[at] + 1) if assigned is None else short(assigned[at])
        for at in range(len(values))
    ]
    return Panel(
        title=title,
        x=Axis("words"),
        y=Axis("units by mean forget value" if assigned is None else "mean timescale set (words)"),
        heat=Heat(
            values=values,
            name="forget value",
            low=0,
            high=1,
            rows=rows,
            columns=[word if at in shown else "" for at, word in enumerate(words)],
        ),
    )
