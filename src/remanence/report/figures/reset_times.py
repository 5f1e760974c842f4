"""Reference times and exponents of trained pLSTMs (pLSTM figure A.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..figure import Axis, Figure, Heat, Panel, Reference, Series
from ..files import NotYetRun, ResultFiles
from .pieces import figure

BINS = 20


def reset_times(files: ResultFiles, statement: str) -> list[Figure]:
    """For the first model of every delay: k_t of all units over a sequence, and the exponents of its units."""
    found = files.expect_found()
    models = found["models"]
    first = {model["need"]: model for model in reversed(models)}
    if not first:
        raise NotYetRun(f"expected models of {files.place} that had learned the task, got none; train them longer")
    shown = [first[need] for need in dict.fromkeys(model["need"] for model in models)]
    top = max(max(model["p"]) for model in shown)
    panels = [panel for model in shown for panel in (reference_times(model), exponents(model, top))]
    return [figure(files, statement, panels, note=compared(found["comparisons"]))]


def compared(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """The t test of the exponents, seed by seed."""
    return " ".join(
        f"Exponents of {' and '.join(one['needs'])}, seed {one['seed']}: t = {one['t']:.1f}, d = {one['cohens_d']:.2f}."
        for one in comparisons
        if one["t"] is not None and one["cohens_d"] is not None
    )


def reference_times(model: Mapping[str, Any]) -> Panel:
    """k_t of the sequence that the analysis kept."""
    title = f"{model['need']}: reference time of every unit, seed {model['seed']}"
    return over_a_sequence(title, model["example_k"], model["example_order"], model["example_signal"])


def over_a_sequence(title: str, k: Sequence[Sequence[float]], order: Sequence[int], signal: float) -> Panel:
    """k_t as a heat map.

    Args:
        title: of the panel.
        k: reference times, `(T, H)`.
        order: of the units, from top to bottom.
        signal: step of the signal, counted from one.
    """
    return Panel(
        title=title,
        x=Axis("step"),
        y=Axis("units, the first to let go on top"),
        heat=Heat(
            values=[[step[unit] for step in k] for unit in order],
            name="reference time k (steps)",
            low=0,
            high=float(len(k)),
            x=list(range(1, len(k) + 1)),
        ),
        references=[Reference(signal, "signal", "x")],
    )


def exponents(model: Mapping[str, Any], top: float) -> Panel:
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
