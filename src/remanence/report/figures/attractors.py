"""Texts whose two runs have not met, over the time since the restart of one."""

from __future__ import annotations

from ..figure import Axis, Figure, Panel
from ..files import ResultFiles
from .shared import SEEDS, figure, with_mean

STARTS = {"zeros": "restart from zeros", "others": "restart from another text's state"}


def attractors(files: ResultFiles, statement: str) -> list[Figure]:
    """Fraction of texts whose state differs from that without a restart, one panel per state at the restart."""
    panels = []
    for need, models in files.expect_found().items():
        for start, words in STARTS.items():
            series = []
            for name, seeds in models.items():
                found = [one[start] for one in seeds.values()]
                curves = [dict(zip(one["steps"], one["apart"], strict=True)) for one in found]
                series += with_mean(name, curves, scale=100)
            panels.append(
                Panel(
                    title=f"{need}, {words}",
                    x=Axis("symbols since the restart", low=0),
                    y=Axis("two runs of a text have not met (%)", low=0),
                    series=series,
                )
            )
    return [figure(files, statement, panels, note=SEEDS)]
