"""Figures of models that were trained on the copy task (pLSTM figures 5 and A.2 to A.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..figure import Axis, Figure, Heat, Panel, Reference, Series
from ..files import NotYetRun, ResultFiles
from .learning_curves import about_seeds
from .shared import figure, guessing, mean_and_band, spread, titled, with_mean

BINS = 20


def over_delays(files: ResultFiles, statement: str) -> list[Figure]:
    """Test accuracy over the test delay, one panel per training delay (pLSTM figure A.2)."""
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
                x=Axis("test delay (steps)", log=True),
                y=Axis("accuracy (%)", low=0, high=102),
                series=series,
                references=trained_at(need, max(max(one.x) for one in series)),
            )
        )
    note = "Error bars: standard deviation over models."
    return [figure(files, statement, panels, note=note)]


def trained_at(need: str, longest: float) -> list[Reference]:
    """A reference line at the training delay, from the name of the need ("T=200"), if it is inside the panel."""
    number = need.removeprefix("T=")
    return [Reference(float(number), "trained", "x")] if number.isdigit() and float(number) <= longest else []


def unit_ablation(files: ResultFiles, statement: str) -> list[Figure]:
    """Accuracy over the number of silenced units, one panel per delay (pLSTM figure 5).

    Mean and standard deviation are over orders and models.
    """
    panels = []
    for need, curves in files.expect_found().items():
        series = []
        for name, seeds in curves.items():
            found = list(seeds.values())
            rows = [[100 * value for value in row] for one in found for row in one["scores"][one["goal"]]]
            mean, low, high = mean_and_band(rows)
            series.append(Series(name, found[0]["counts"], mean, low, high))
        panels.append(
            Panel(
                title=need,
                x=Axis("silenced units", low=0),
                y=Axis("accuracy (%)", low=0, high=102),
                series=series,
            )
        )
    note = "Bands: standard deviation over random orders of silencing and over models."
    return [figure(files, statement, panels, note=note)]


def reset_times(files: ResultFiles, statement: str) -> list[Figure]:
    """Reference times k_t over a sequence and exponents, of the first model of every delay (pLSTM figure A.4)."""
    found = files.expect_found()
    shown = [model for model in found["models"] if "example_k" in model]
    if not shown:
        raise NotYetRun(f"expected models of {files.place} that have learned the task, got none; train them longer")
    top = max(max(model["p"]) for model in shown)
    panels = [panel for model in shown for panel in (reference_times(model), exponents_panel(model, top))]
    return [figure(files, statement, panels, note=exponents_compared(found["comparisons"]))]


def exponents_compared(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """The t test of the exponents, seed by seed."""
    return " ".join(
        f"Exponents of {' and '.join(one['needs'])}, seed {one['seed']}: t = {one['t']:.1f}, d = {one['cohens_d']:.2f}."
        for one in comparisons
        if one["t"] is not None and one["cohens_d"] is not None
    )


def reference_times(model: Mapping[str, Any]) -> Panel:
    """k_t of the example sequence in the findings."""
    title = f"{model['need']}: reference time of every unit, seed {model['seed']}"
    return over_a_sequence(title, model["example_k"], model["example_order"], model["example_signal"])


def over_a_sequence(title: str, k: Sequence[Sequence[float]], order: Sequence[int], signal: float) -> Panel:
    """k_t as a heat map.

    Args:
        title: of the panel.
        k: reference times, `(T, H)`.
        order: of the units, from top to bottom.
        signal: step of the signal, from 1.
    """
    return Panel(
        title=title,
        x=Axis("step"),
        y=Axis("units, first to reset on top"),
        heat=Heat(
            values=[[step[unit] for step in k] for unit in order],
            name="reference time k (steps)",
            low=0,
            high=float(len(k)),
            x=list(range(1, len(k) + 1)),
        ),
        references=[Reference(signal, "signal", "x")],
    )


def exponents_panel(model: Mapping[str, Any], top: float) -> Panel:
    """A histogram of p with the later-reset units in front."""
    width = max(top, 1e-9) / BINS
    later = set(model["later"])
    centres = [width * (place + 0.5) for place in range(BINS)]

    def counted(units: Sequence[int]) -> list[float]:
        counts = [0.0] * BINS
        for unit in units:
            counts[min(BINS - 1, max(0, int(model["p"][unit] / width)))] += 1
        return counts

    everything = range(len(model["p"]))
    return Panel(
        title=f"{model['need']}: exponents, mean {model['p_mean']:.2f}",
        x=Axis("exponent p", low=0, high=top * 1.02),
        y=Axis("units"),
        series=[
            Series("all units", centres, counted(everything), mark="bars"),
            Series("later-reset units", centres, counted([unit for unit in everything if unit in later]), mark="bars"),
        ],
        note=f"{len(later)} of {len(model['p'])} units are later-reset.",
    )


def fixed_exponent(files: ResultFiles, statement: str) -> list[Figure]:
    """Accuracy over updates, one line per fixed exponent p, and updates to learn the task over p (pLSTM figure A.3)."""
    runs = files.expect_runs()
    exponents = {name: float(name.removeprefix("p-")) for name in runs if name.startswith("p-")}
    shades = dict(zip(sorted(exponents, key=exponents.__getitem__), spread(len(exponents)), strict=True))
    over_updates = Panel(
        title="",
        x=Axis("updates", low=0),
        y=Axis(titled(f"validation {files.score}", files.unit)),
        series=[
            one
            for name in shades
            for one in with_mean(
                f"p = {exponents[name]:g}", [run.curve(files.score) for run in runs[name]], files.scale, shades[name]
            )
        ],
        references=guessing(runs, files.score, files.scale),
    )
    panels, notes = [over_updates], [note] if (note := about_seeds([over_updates])) else []
    if files.reach is not None:
        level = f"{files.reach * files.scale:g}{' ' + files.unit if files.unit else ''}"
        points = [
            (exponents[name], float(first))
            for name in shades
            for run in runs[name]
            if (first := first_reaching(run.curve(files.score), files.reach)) is not None
        ]
        all_of_them = sum(len(runs[name]) for name in shades)
        if points:
            panels.append(by_exponent(points, level, max(exponents.values())))
        if len(points) < all_of_them:
            notes.append(f"{all_of_them - len(points)} of {all_of_them} runs have not reached {level}.")
    title = f"{files.title} ({files.place})"
    return [Figure(files.id, title, panels, statement, (files.place,), columns=2, note=" ".join(notes))]


def by_exponent(points: list[tuple[float, float]], level: str, largest: float) -> Panel:
    """Updates to learn the task, one point per run that did."""
    x, y = zip(*points, strict=True)
    return Panel(
        title="",
        x=Axis("exponent p", low=0, high=1.05 * largest),
        y=Axis(f"updates to {level}", low=0),
        series=[Series("runs that learned it", x, y, mark="points", like="plstm")],
    )


def first_reaching(curve: dict[int, float], level: float) -> int | None:
    """The first evaluated update with at least this score."""
    return next((at for at, value in curve.items() if value >= level and math.isfinite(value)), None)
