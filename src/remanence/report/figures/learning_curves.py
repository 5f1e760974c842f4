"""Learning curves: scores over the updates of training."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..figure import Axis, Figure, Panel
from ..files import ResultFiles, RunFiles
from ..look import MARKERS
from .shared import SEEDS, guessing, in_sight, spread, titled, with_mean

LOGARITHMIC = ("loss", "perplexity")
"""Scores whose ratios matter."""
TIMED = "-time"
"""Suffix of the names of models that get time as an input."""
ENDED = "In a mean, a run that ended earlier counts with its last value."
WITHOUT = "Runs without an evaluation are left out."
NUMBERED = re.compile(r"(.*)-\d+(?:\.\d+)?")
"""Names of models for a value of a quantity."""
Groups = Mapping[str, Sequence[RunFiles]]


def learning_curves(files: ResultFiles, statement: str) -> list[Figure]:
    """Validation score and loss over updates, one panel each; models with time as an input in separate panels."""
    scores = [files.score] if files.score == "loss" else [files.score, "loss"]
    panels = [
        panel(files, group, score, words)
        for group, words in by_inputs(files.expect_runs())
        for score in scores
        if any(run.curve(score) for runs in group.values() for run in runs)
    ]
    return [figure(files, statement, panels)]


def over_epochs(files: ResultFiles, statement: str) -> list[Figure]:
    """The validation score over epochs (fast-gate figure 6)."""
    return [figure(files, statement, [panel(files, files.expect_runs(), files.score, axis="epoch")])]


def loss_and_score(files: ResultFiles, statement: str) -> list[Figure]:
    """Training loss and validation score, without and with time as an input (pLSTM figure A.5)."""
    panels = []
    for group, words in by_inputs(files.expect_runs()):
        panels += [panel(files, group, "loss", words, split="train"), panel(files, group, files.score, words)]
    return [figure(files, statement, panels)]


def figure(files: ResultFiles, statement: str, panels: Sequence[Panel]) -> Figure:
    """The figure with these panels; raises NotYetRun if they are empty."""
    if not panels or not any(one.series for one in panels):
        raise files.nothing()
    notes = [about_seeds(panels)]
    if not all(run.metrics for runs in files.runs.values() for run in runs):
        notes.append(WITHOUT)
    return Figure(
        id=files.id,
        title=f"{files.title} ({files.place})",
        panels=panels,
        statement=statement,
        made_from=(files.place,),
        columns=2,
        note=" ".join(filter(None, notes)),
    )


def about_seeds(panels: Sequence[Panel]) -> str:
    """What the lines of single seeds and their means are; empty if no model has several seeds."""
    if not any(one.faint for panel in panels for one in panel.series):
        return ""
    early = False
    for panel in panels:
        ends = {one.name: max(one.x) for one in panel.series if not one.faint}
        early |= any(one.faint and max(one.x) < ends[one.like or ""] for one in panel.series)
    return f"{SEEDS} {ENDED}" if early else SEEDS


def by_inputs(runs: Groups) -> list[tuple[dict[str, Sequence[RunFiles]], str]]:
    """Models without and with time as an input, under the same names, so that their colours match."""
    timed = {name.removesuffix(TIMED): group for name, group in runs.items() if name.endswith(TIMED)}
    others = {name: group for name, group in runs.items() if not name.endswith(TIMED)}
    if not timed:
        return [(others, "")]
    found = [(others, "without time as an input"), (timed, "with time as an input")]
    return [(group, words) for group, words in found if group]


def shades_of(names: Sequence[str]) -> Sequence[float | None]:
    """Shades of a colour scale for more values of one quantity than there are markers, such as p-0.1; else None."""
    numbers = [NUMBERED.fullmatch(name) for name in names]
    ordered = all(numbers) and len({number[1] for number in numbers if number}) == 1
    return spread(len(names)) if ordered and len(names) > len(MARKERS) else [None] * len(names)


def panel(
    files: ResultFiles, runs: Groups, score: str, words: str = "", *, split: str = "validation", axis: str = "update"
) -> Panel:
    """One score of several models."""
    own = score == files.score
    scale, unit = (files.scale, files.unit) if own else (1.0, "")
    log = score in LOGARITHMIC
    shades = shades_of(list(runs))
    series = [
        one
        for (name, group), shade in zip(runs.items(), shades, strict=True)
        for one in with_mean(name, [run.over(axis, score, split) for run in group], scale, shade)
    ]
    return Panel(
        title=words,
        x=Axis(f"{axis}s", low=0),
        y=Axis(titled(f"{'training' if split == 'train' else split} {score}", unit), log=log),
        series=series,
        references=[one for one in guessing(runs, score, scale) if in_sight(one.at, series, log=log)],
    )
