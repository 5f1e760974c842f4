"""Timescales that were set against those that forget values show (multi-timescale paper, figure 4)."""

from __future__ import annotations

from ..figure import Axis, Figure, Panel, Series
from ..files import ResultFiles
from .pieces import each_model, few, figure

POINTS = 600


def assigned(files: ResultFiles, statement: str) -> list[Figure]:
    """Both over the units in the order of assigned timescales, of the first seed of every model."""
    panels = []
    for need, model, (first, *_) in each_model(files.expect_found()):
        shown = few(len(first["assigned"]), POINTS)
        units = [at + 1 for at in shown]
        panels.append(
            Panel(
                title=f"{need}, {model}: layer {first['layer']}",
                x=Axis("units in the order of assigned timescales"),
                y=Axis("timescale (words)", log=True),
                series=[
                    Series("estimated", units, [first["estimated"][at] for at in shown], mark="points"),
                    Series("assigned", units, [first["assigned"][at] for at in shown], dashed=True),
                ],
                note=f"Correlation of ranks {correlation(first['spearman'])}, "
                f"of logarithms {correlation(first['log_pearson'])}.",
            )
        )
    return [figure(files, statement, panels)]


def correlation(value: float | None) -> str:
    """In a sentence."""
    return "unknown" if value is None else f"{value:.3f}"
