"""How quickly a pLSTM learns with the same exponent for all units (pLSTM figure A.3)."""

from __future__ import annotations

import math

from ..figure import Axis, Figure, Panel, Series
from ..files import ResultFiles
from .curves import guessing, titled, with_mean
from .learning_curves import SEEDS


def fixed_exponent(files: ResultFiles, statement: str) -> list[Figure]:
    """Accuracy over updates, a line for every p, and updates to learn the task by p."""
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
    panels, notes = [over_updates], [SEEDS] if any(one.faint for one in over_updates.series) else []
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
            notes.append(f"{all_of_them - len(points)} of {all_of_them} runs did not reach {level}.")
    title = f"{files.title} ({files.place})"
    return [Figure(files.id, title, panels, statement, (files.place,), columns=2, note=" ".join(notes))]


def by_exponent(points: list[tuple[float, float]], level: str, largest: float) -> Panel:
    """Updates to learn the task, a point for every run that did."""
    x, y = zip(*points, strict=True)
    return Panel(
        title="",
        x=Axis("exponent p", low=0, high=1.05 * largest),
        y=Axis(f"updates to {level}", low=0),
        series=[Series("runs that learned it", x, y, mark="points", like="plstm")],
    )


def spread(count: int) -> list[float]:
    """Places on a scale of colours, from one end to the other."""
    return [number / max(1, count - 1) for number in range(count)]


def first_reaching(curve: dict[int, float], level: float) -> int | None:
    """The first evaluated update with at least this score."""
    return next((at for at, value in curve.items() if value >= level and math.isfinite(value)), None)
