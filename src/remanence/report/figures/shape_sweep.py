"""Perplexity over the shape of the distribution of timescales (multi-timescale paper, figures 9 and 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..figure import Axis, Figure, Panel, Reference, Series
from ..files import ResultFiles
from .fixed_exponent import spread
from .learning_curves import learning_curves
from .pieces import few, figure, mean

POINTS = 300


def shape_sweep(files: ResultFiles, statement: str) -> list[Figure]:
    """Assigned timescales for every shape, and perplexity over the shape, for every corpus; else learning curves."""
    if not files.has_found:
        return learning_curves(files, statement)
    panels = []
    for corpus, found in files.expect_found().items():
        panels += [timescales(corpus, found), perplexity(corpus, found)]
    return [figure(files, statement, panels, note="Points: single seeds. Lines: their means.")]


def timescales(corpus: str, found: Mapping[str, Any]) -> Panel:
    """What units were given, long to short."""
    series = []
    for one, shade in zip(found["shapes"], spread(len(found["shapes"])), strict=True):
        shown = few(len(one["timescales"]), POINTS)
        units = [at + 1 for at in shown]
        series.append(
            Series(f"alpha = {one['alpha']:g}", units, [one["timescales"][at] for at in shown], shade=shade),
        )
    return Panel(
        title=f"{corpus}: timescales of layer {found['layer']}",
        x=Axis("units, long to short"),
        y=Axis("assigned timescale (words)", log=True),
        series=series,
    )


def perplexity(corpus: str, found: Mapping[str, Any]) -> Panel:
    """Validation decides, test is reported."""
    series = []
    for split in ("validation", "test"):
        x, y = [], []
        for one in found["shapes"]:
            for value in one[split].values():
                if value is not None:
                    x.append(one["alpha"])
                    y.append(value)
        means = [mean([one[f"{split}_mean"]]) for one in found["shapes"]]
        series += [
            Series(f"{split} perplexity", [one["alpha"] for one in found["shapes"]], means),
            Series(f"{split}, single seeds", x, y, mark="points", like=f"{split} perplexity"),
        ]
    best = found["best"]
    return Panel(
        title=f"{corpus}: perplexity",
        x=Axis("shape alpha"),
        y=Axis("perplexity"),
        series=series,
        references=[] if best is None else [Reference(best, f"best: {best:g}", "x")],
    )
