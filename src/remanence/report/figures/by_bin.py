"""Test accuracy by a property of the sequence: length of a review, longest dependency in a string of brackets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..figure import Axis, Figure, Panel, Series
from ..files import ResultFiles, RunFiles
from .learning_curves import learning_curves
from .shared import mean_and_band

NAME = re.compile(r"_(?:(\d+)_(\d+)|over_(\d+))")


def by_length(files: ResultFiles, statement: str) -> list[Figure]:
    """Accuracy by length of the review (pLSTM figure 4), and learning curves."""
    return in_bins(files, statement, "length of the review (words)", at_edge=False)


def by_dependency(files: ResultFiles, statement: str) -> list[Figure]:
    """Accuracy by longest dependency (left of figure 2 of the multi-timescale paper), and learning curves."""
    return in_bins(files, statement, "longest dependency (symbols, up to)", at_edge=True)


def in_bins(files: ResultFiles, statement: str, title: str, at_edge: bool) -> list[Figure]:
    """A figure with accuracies in bins, if runs have finished, and one with learning curves."""
    curves = learning_curves(files, statement)
    finished = {
        name: [run for run in runs if run.test(files.score) is not None] for name, runs in files.expect_runs().items()
    }
    finished = {name: runs for name, runs in finished.items() if runs}
    bins = bins_of(finished, files.score)
    if not bins:
        return curves
    ends = list(bins.values())
    x = [float(high or low) for low, high in ends] if at_edge else list(map(float, range(len(ends))))
    words = [f"{low}-{high}" if high else f"over {low}" for low, high in ends]
    panel = Panel(
        title="",
        x=Axis(title) if at_edge else Axis(title, ticks=list(zip(x, words, strict=True))),
        y=Axis(f"test {files.score} ({files.unit})" if files.unit else f"test {files.score}"),
        series=[series(name, runs, bins, x, files.scale) for name, runs in finished.items()],
    )
    seeds = max(len(runs) for runs in finished.values())
    note = "Error bars: standard deviation over seeds." if seeds > 1 else ""
    figure = Figure(files.id, f"{files.title} ({files.place})", [panel], statement, (files.place,), note=note)
    (curve,) = curves
    return [figure, Figure(f"{files.id}#curves", curve.title, curve.panels, statement, curve.made_from, 2, curve.note)]


def bins_of(runs: Mapping[str, Sequence[RunFiles]], score: str) -> dict[str, tuple[int, int | None]]:
    """Names and bounds of the bins that all runs have scores for, in order."""
    tests = [(run.result or {}).get("test") or {} for group in runs.values() for run in group]
    found = {}
    for name in tests[0] if tests else ():
        match = NAME.fullmatch(name.removeprefix(score))
        if match and name.startswith(score) and all(test.get(name) is not None for test in tests):
            low, high, over = match.groups()
            found[name] = (int(over or low), None if over else int(high))
    return dict(sorted(found.items(), key=lambda item: item[1][0]))


def series(name: str, runs: Sequence[RunFiles], bins: Mapping[str, object], x: list[float], scale: float) -> Series:
    """Mean and standard deviation over seeds."""
    rows = [[scale * (run.test(score) or 0.0) for score in bins] for run in runs]
    mean, low, high = mean_and_band(rows)
    return Series(name, x, mean, low, high, "line and points")
