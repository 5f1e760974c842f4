"""Perplexity over timescales that are set in one layer or another (multi-timescale paper, appendix A.6)."""

from __future__ import annotations

from ..figure import Axis, Figure, Panel, Series
from ..files import ResultFiles
from .learning_curves import learning_curves
from .pieces import figure, mean


def layer_choice(files: ResultFiles, statement: str) -> list[Figure]:
    """Perplexity of every model, for every corpus; learning curves where only these are there."""
    if not files.has_found:
        return learning_curves(files, statement)
    panels = []
    for corpus, found in files.expect_found().items():
        models = found["models"]
        x = list(map(float, range(len(models))))
        panels.append(
            Panel(
                title=corpus,
                x=Axis("model", ticks=list(zip(x, models, strict=True))),
                y=Axis("perplexity"),
                series=[
                    Series(split, x, [mean([one[f"{split}_mean"]]) for one in models.values()], mark="points")
                    for split in ("validation", "test")
                ],
            )
        )
    return [figure(files, statement, panels)]
