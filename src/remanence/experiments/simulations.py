"""Simulations: functions of `remanence.analysis` that need no model, with the table that shows their result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import analysis
from ..table import Table


def decay(result: analysis.DecayCurves) -> Table:
    """What remains of the memory after a few numbers of steps."""
    last = len(result.steps) - 1
    shown = sorted({step for step in (1, 10, 50, 100, last) if step <= last})
    rows = [(str(step), f"{result.exponential[step]:.4g}", f"{result.power_law[step]:.4g}") for step in shown]
    crossing = "they do not cross" if result.crossing is None else f"they cross after {result.crossing:.1f} steps"
    return Table(
        "what remains of a memory without input",
        ("step", "exponential", "power law"),
        rows,
        words=0,
        notes=[crossing],
    )


def gates(result: analysis.GateFunctions) -> Table:
    """Largest slopes and tails of the gates."""
    rows = [
        (
            name,
            f"{slope.max():.4f}",
            *(f"{result.tail_log10[name][int(at * (len(result.tail_z) - 1))]:.4g}" for at in (0.25, 0.5, 1)),
        )
        for name, slope in result.slope.items()
    ]
    places = (f"{result.tail_z[int(at * (len(result.tail_z) - 1))]:g}" for at in (0.25, 0.5, 1))
    return Table("gates", ("gate", "largest slope", *(f"log10(1 - phi({place}))" for place in places)), rows, words=1)


def toy(result: analysis.ToyFlow) -> Table:
    """Measured slopes next to the bounds."""
    rows = [
        (
            name,
            curve.rate,
            f"{curve.measured_slope:.3f}",
            f"{curve.derived_slope:.3f}",
            f"{curve.bound_over_flow:.2f}",
            f"{curve.descent[-1]:.3g}",
        )
        for name, curve in result.gates.items()
    ]
    headings = (
        "gate",
        "1 - f falls as",
        "measured slope",
        "slope of the bound",
        "bound / flow",
        f"1 - f after {int(result.steps[-1])} steps",
    )
    note = (
        f"the form printed for the fast gate, W^2(c tau^(-1/2)), has slope {result.printed_slope:.3f}, like the sigmoid"
    )
    return Table("log-log slopes of 1 - f over the last two decades of tau", headings, rows, words=2, notes=[note])


KNOWN: dict[str, tuple[Callable[..., analysis.Result], Callable[[Any], Table]]] = {
    "decay_curves": (analysis.decay_curves, decay),
    "gate_functions": (analysis.gate_functions, gates),
    "toy_gradient_flow": (analysis.toy_gradient_flow, toy),
}
