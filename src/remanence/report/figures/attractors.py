"""Sequences that have not come back, over the time since they began anew."""

from __future__ import annotations

from ..figure import Axis, Figure, Panel, Series
from ..files import ResultFiles
from .shared import figure, mean_and_band

STARTS = {"zeros": "from zeros", "others": "from another text's state"}


def attractors(files: ResultFiles, statement: str) -> list[Figure]:
    """Share of the sequences whose state is another than it would be, a panel for every start."""
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
                    x=Axis("symbols since the start", low=0),
                    y=Axis("not come back (%)", low=0),
                    series=series,
                )
            )
    return [figure(files, statement, panels, note="Bands: standard deviation over models.")]
