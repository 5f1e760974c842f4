"""Figures of simulations, without training: decay, gate functions and the toy problem."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ..figure import Axis, Figure, Panel, Reference, Series
from ..files import ResultFiles
from ..look import ten_to
from .shared import figure

LATE = 10.0
"""Time from which slopes of the toy problem are shown: the bounds hold for late times."""
LOWEST = -16
"""The lowest power of ten shown of 1 - phi."""


def decay(files: ResultFiles, statement: str) -> list[Figure]:
    """Decay of a memory without input (pLSTM figure 1)."""
    found = files.expect_found()
    crossing = found["crossing"]
    steps = found["steps"]
    seen = crossing is not None and crossing <= steps[-1]
    panel = Panel(
        title="",
        x=Axis("time since the input was switched off (steps)", low=0, high=steps[-1]),
        y=Axis("fraction of the memory that remains", low=0, high=1.02),
        series=[Series("exponential", steps, found["exponential"]), Series("power law", steps, found["power_law"])],
        references=[Reference(crossing, f"equal after {crossing:.1f}", "x")] if seen else [],
    )
    return [figure(files, statement, [panel])]


def gate_functions(files: ResultFiles, statement: str) -> list[Figure]:
    """Gates, their slopes and their tails (fast-gate figure 1)."""
    found = files.expect_found()
    z, tail = found["z"], found["tail_z"]
    ends = {"low": z[0], "high": z[-1]}
    panels = [
        Panel(
            "gate",
            Axis("pre-activation z", **ends),
            Axis("forget value φ(z)", low=0, high=1),
            [Series(name, z, values) for name, values in found["forget"].items()],
        ),
        Panel(
            "slope",
            Axis("pre-activation z", **ends),
            Axis("slope φ'(z)", low=0),
            [Series(name, z, values) for name, values in found["slope"].items()],
        ),
        Panel(
            "distance to one",
            Axis("pre-activation z", low=tail[0], high=tail[-1]),
            Axis("1 - φ(z)", low=LOWEST, high=0, ticks=[(at, ten_to(at)) for at in range(LOWEST, 1, 4)]),
            [Series(name, tail, values) for name, values in found["tail_log10"].items()],
            note="The fast gate leaves the panel: log10(1 - φ) continues to "
            f"{min(found['tail_log10'].get('fast', [0])):.0f} at z = {tail[-1]:g}.",
        ),
    ]
    return [figure(files, statement, panels, columns=3)]


def toy(files: ResultFiles, statement: str) -> list[Figure]:
    """How quickly each gate learns to hold a value (fast-gate figure 2)."""
    found = files.expect_found()
    steps, times = found["steps"], found["times"]
    distances, slopes = [], []
    for name, curve in found["gates"].items():
        bound = [math.nan if value is None or value > 1 else value for value in curve["bound"]]
        distances += [
            Series(name, times, curve["flow"]),
            Series(f"{name}, descent", steps[::2], curve["descent"][::2], mark="points", like=name),
            Series(f"{name}, bound", times, bound, dashed=True, like=name),
        ]
        slopes += [
            Series(name, times[1:], local_slopes(times, curve["flow"])),
            Series(f"{name}, bound", times[1:], local_slopes(times, bound), dashed=True, like=name),
        ]
    panels = [
        Panel(
            "distance to the goal",
            Axis("time τ, or steps of descent", log=True),
            Axis("1 - f", log=True, high=1),
            distances,
        ),
        Panel(
            "rate of decay: a power of τ is a horizontal line",
            Axis("time τ", log=True, low=LATE, high=times[-1]),
            Axis("slope of log(1 - f) over log τ", low=-2, high=0),
            slopes,
            references=[Reference(found["printed_slope"], "as printed\nfor fast")],
        ),
    ]
    note = "Lines: gradient flow. Points: gradient descent. Dashed: the derived bound for late times."
    return [figure(files, statement, panels, note=note)]


def local_slopes(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """d log y / d log x from point to point."""
    pairs = itertools.pairwise(zip(x, y, strict=True))
    return [math.log(after / before) / math.log(end / start) for (start, before), (end, after) in pairs]
