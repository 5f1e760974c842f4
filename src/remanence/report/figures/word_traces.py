"""How long a replaced word leaves a trace in the cells (multi-timescale paper, figures 6 to 8)."""

from __future__ import annotations

from ..figure import Axis, Figure, Panel, Series
from ..files import ResultFiles
from .fixed_exponent import spread
from .pieces import each_model, figure, mean_rows, seeds_in_words, short


def word_traces(files: ResultFiles, statement: str) -> list[Figure]:
    """The trace in every layer of every model, and in groups of units where timescales were set."""
    layers, groups, most = [], [], 1
    for need, model, seeds in each_model(files.expect_found()):
        first = seeds[0]
        most = max(most, len(seeds))
        steps = first["steps"][1:]  # at the word itself the trace is one, and zero has no logarithm
        rows = mean_rows([one["by_layer"] for one in seeds])
        named = [Series(f"layer {number}", steps, row[1:]) for number, row in enumerate(rows, 1)]
        layers.append(panel(f"{need}, {model}", named))
        if first["groups"] is None:
            continue
        rows = mean_rows([one["by_group"] for one in seeds])
        means = first["groups"]["means"]
        shaded = [
            Series(f"{short(mean)} words", steps, row[1:], shade=shade)
            for row, mean, shade in zip(rows, means, spread(len(rows)), strict=True)
        ]
        whole = mean_rows([one["by_layer"] for one in seeds])[first["layer"] - 1]
        shaded.append(Series("all units", steps, whole[1:], dashed=True))
        groups.append(panel(f"{need}, {model}: layer {first['layer']}, by mean timescale of the group", shaded))
    note = seeds_in_words(most)
    found = [figure(files, statement, layers, name="layers", note=note)]
    return [*found, figure(files, statement, groups, name="groups", note=note)] if groups else found


def panel(title: str, series: list[Series]) -> Panel:
    """Traces over words."""
    x, y = Axis("words after the replaced one", log=True), Axis("trace D(k) / D(0)", log=True)
    return Panel(title=title, x=x, y=y, series=series)
