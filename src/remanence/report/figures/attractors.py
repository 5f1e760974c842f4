"""Sequences whose state has not recovered, over the time since the restart."""

from __future__ import annotations

from ..figure import Axis, Figure, Panel, Series
from ..files import ResultFiles
from .shared import figure, mean_and_band

STARTS = {"zeros": "from zeros", "others": "from another text's state"}


def attractors(files: ResultFiles, statement: str) -> list[Figure]:
    """Fraction of sequences whose state differs from that without a restart, one panel per initial state."""
    panels = []
    for need, models in files.expect_found().items():
        for start, words in STARTS.items():
            series = []
            for name, seeds in models.items():
                found = [one[start] for one in seeds.values()]
                mean, low, high = mean_and_band([[100 * value for value in one["apart"]] for one in found])
                series.append(Series(name, found[0]["steps"], mean, low, high))
            panels.append(
                Panel(
                    title=f"{need}, {words}",
                    x=Axis("symbols since the restart", low=0),
                    y=Axis("not recovered (%)", low=0),
                    series=series,
                )
            )
    return [figure(files, statement, panels, note="Bands: standard deviation over models.")]
