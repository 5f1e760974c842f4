"""Accuracy as more and more units are silenced (pLSTM figure 5)."""

from __future__ import annotations

from ..figure import Axis, Figure, Panel, Series
from ..files import ResultFiles
from .curves import mean_and_band
from .pieces import figure


def unit_ablation(files: ResultFiles, statement: str) -> list[Figure]:
    """Mean and standard deviation over orders and models, a panel for every delay."""
    panels = []
    for need, curves in files.expect_found().items():
        series = []
        for name, seeds in curves.items():
            found = list(seeds.values())
            rows = [[100 * value for value in row] for one in found for row in one["scores"][one["goal"]]]
            mean, low, high = mean_and_band(rows)
            series.append(Series(name, found[0]["counts"], mean, low, high))
        panels.append(
            Panel(
                title=need,
                x=Axis("silenced units", low=0),
                y=Axis("accuracy (%)", low=0, high=102),
                series=series,
            )
        )
    note = "Bands: standard deviation over orders in which units are silenced, and over models."
    return [figure(files, statement, panels, note=note)]
