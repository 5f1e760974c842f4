"""Models trained on one delay, tested on others (pLSTM figure A.2)."""

from __future__ import annotations

from ..figure import Axis, Figure, Panel, Reference, Series
from ..files import ResultFiles
from .curves import mean_and_band
from .pieces import figure


def over_delays(files: ResultFiles, statement: str) -> list[Figure]:
    """Accuracy over the delay of the test, a panel for every delay of the training."""
    panels = []
    for need, models in files.expect_found().items():
        series = []
        for name, found in models.items():
            rows = [[100 * value for value in row] for row in found["scores"][found["goal"]]]
            mean, low, high = mean_and_band(rows)
            series.append(Series(name, found["delays"], mean, low, high, "line and points"))
        panels.append(
            Panel(
                title=f"trained on {need}",
                x=Axis("delay of the test (steps)", log=True),
                y=Axis("accuracy (%)", low=0, high=102),
                series=series,
                references=trained_at(need, max(max(one.x) for one in series)),
            )
        )
    note = "Error bars: standard deviation over models."
    return [figure(files, statement, panels, note=note)]


def trained_at(need: str, longest: float) -> list[Reference]:
    """The delay of the training, from the name under which an analysis knows it, "T=200", where it is in the panel."""
    number = need.removeprefix("T=")
    return [Reference(float(number), "trained", "x")] if number.isdigit() and float(number) <= longest else []
