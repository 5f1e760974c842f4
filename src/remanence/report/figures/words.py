"""Figures of language models (multi-timescale paper, figures 3 and 6 to 12, and appendix A.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..figure import Axis, Figure, Panel, Reference, Series
from ..files import ResultFiles
from .learning_curves import learning_curves
from .shared import each_model, few, figure, mean, mean_rows, seeds_in_words, short, spread

COUNTINGS = {"train": "in the training text", "all": "in training, validation and test text"}


POINTS = 300


def routing(files: ResultFiles, statement: str) -> list[Figure]:
    """Perplexity without a group of units relative to the whole model, by word frequency (figures 3, 11 and 12)."""
    panels, most = [], 1
    for need, model, seeds in each_model(files.expect_found()):
        first = seeds[0]
        most = max(most, len(seeds))
        for counting, words in COUNTINGS.items():
            ratios = mean_rows([one[counting]["ratio"] for one in seeds])
            columns = first[counting]["columns"]
            groups = list(range(len(ratios)))
            panels.append(
                Panel(
                    title=f"{need}, {model}: words by occurrences {words}",
                    x=Axis(
                        f"silenced: mean timescale in layer {first['layer']} (words)",
                        ticks=[(at, short(mean)) for at, mean in zip(groups, first["groups"]["means"], strict=True)],
                    ),
                    y=Axis("perplexity / whole model"),
                    series=[
                        Series(
                            "all words" if column == "all" else column,
                            groups,
                            [row[place] for row in ratios],
                            dashed=column == "all",
                        )
                        for place, column in enumerate(columns)
                    ],
                    references=[Reference(1.0, "no loss")],
                )
            )
    return [figure(files, statement, panels, note=seeds_in_words(most))]


def word_traces(files: ResultFiles, statement: str) -> list[Figure]:
    """The trace of a replaced word per layer, and per group of units where timescales were set (figures 6 to 8)."""
    layers, groups, most = [], [], 1
    for need, model, seeds in each_model(files.expect_found()):
        first = seeds[0]
        most = max(most, len(seeds))
        steps = first["steps"][1:]  # without k = 0, which has no logarithm
        rows = mean_rows([one["by_layer"] for one in seeds])
        named = [Series(f"layer {number}", steps, row[1:]) for number, row in enumerate(rows, 1)]
        layers.append(trace_panel(f"{need}, {model}", named))
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
        groups.append(trace_panel(f"{need}, {model}: layer {first['layer']}, by mean timescale of the group", shaded))
    note = seeds_in_words(most)
    found = [figure(files, statement, layers, name="layers", note=note)]
    return [*found, figure(files, statement, groups, name="groups", note=note)] if groups else found


def trace_panel(title: str, series: list[Series]) -> Panel:
    """Traces over words."""
    x, y = Axis("words after the replaced one", log=True), Axis("trace D(k) / D(0)", log=True)
    return Panel(title=title, x=x, y=y, series=series)


def shape_sweep(files: ResultFiles, statement: str) -> list[Figure]:
    """Assigned timescales and perplexity by shape, per corpus; without results, learning curves (figures 9 and 10)."""
    if not files.has_found:
        return learning_curves(files, statement)
    panels = []
    for corpus, found in files.expect_found().items():
        panels += [assigned_panel(corpus, found), perplexity_panel(corpus, found)]
    return [figure(files, statement, panels, note="Points: single seeds. Lines: their means.")]


def assigned_panel(corpus: str, found: Mapping[str, Any]) -> Panel:
    """Assigned timescales of the units, long to short."""
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


def perplexity_panel(corpus: str, found: Mapping[str, Any]) -> Panel:
    """Validation and test perplexity over the shape. Validation selects, test is reported."""
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


def layer_choice(files: ResultFiles, statement: str) -> list[Figure]:
    """Perplexity of every model, per corpus; learning curves if there are no results (appendix A.6)."""
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
