"""How fast each gate learns to hold a value: one unit, gradient descent and gradient flow (fast-gate figure 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from ..names import lookup
from .plain import Result
from .toy_gates import KNOWN, ToyGate

Numbers = NDArray[numpy.float64]

MATCHED = 1 / (1 + math.e)
"""Initial 1 - f of all gates: f = sigmoid(1)."""


@dataclass(frozen=True, eq=False)
class ToyCurve(Result):
    """The curves of one gate. All values are 1 - f, which should approach zero."""

    descent: Numbers
    """1 - f after the gradient descent steps in `ToyFlow.steps`."""
    flow: Numbers
    """1 - f at the gradient flow times in `ToyFlow.times`."""
    bound: Numbers
    """The theoretical asymptote for late times; NaN where it is not yet defined."""
    rate: str
    """The asymptote as a formula."""
    measured_slope: float
    """d log(1 - f) / d log(tau) of the flow over its last two decades."""
    derived_slope: float
    """The same slope of the asymptote."""
    bound_over_flow: float
    """Ratio of asymptote and flow at the last time; it tends to one."""


@dataclass(frozen=True, eq=False)
class ToyFlow(Result):
    """The curves of all gates."""

    steps: NDArray[numpy.int64]
    """Steps of gradient descent."""
    times: Numbers
    """Times tau of the gradient flow."""
    gates: dict[str, ToyCurve]
    """Curves by name of the gate."""
    printed_slope: float
    """Slope over the same decades of W^2(tau^-1/2) on the principal branch, which the paper prints for the fast gate.
    It equals the slope of the sigmoid, so the printed formula does not support the claim in the text."""


def toy_gradient_flow(
    gates: Sequence[str] = ("softsign", "sigmoid", "fast", "refine"),
    *,
    span: int = 10,
    rate: float = 1.0,
    steps: int = 10_000,
    time: float = 1e6,
    per_decade: int = 10,
) -> ToyFlow:
    """Minimise |phi(z)^n - 1| over z: keep a value of one for n steps.

        gradient descent    z <- z + rate * n f^(n-1) phi'(z)
        gradient flow       du/dtau = -phi'(z)^2 n f^(n-1),    u = 1 - f

    All gates start at f = sigmoid(1).

    Args:
        gates: "softsign", "sigmoid", "fast", and "refine" with its auxiliary gate held at one.
        span: n, the number of steps over which the value is kept.
        rate: learning rate of the descent.
        steps: steps of gradient descent.
        time: end of the flow, at least 1000.
        per_decade: points reported per factor of ten, in steps and in time.
    """
    if span < 1 or steps < 1 or per_decade < 1:
        raise ValueError(f"expected positive span, steps and per_decade, got {span}, {steps} and {per_decade}")
    if not (math.isfinite(time) and time >= 1000):
        raise ValueError(f"expected a time of at least 1000, two decades after the first ten, got {time}")
    known = {name: lookup("toy gate", name, KNOWN) for name in gates}
    points = numpy.arange(-per_decade, math.floor(math.log10(time) * per_decade + 1e-9) + 1)
    times = numpy.unique(numpy.append(10.0 ** (points / per_decade), time))
    shown = numpy.unique(numpy.append(numpy.round(times[(times >= 1) & (times <= steps)]), steps).astype(numpy.int64))
    return ToyFlow(
        steps=shown,
        times=times,
        gates={name: _curve(gate, span, rate, shown, times) for name, gate in known.items()},
        printed_slope=_printed_slope(times[-1]),
    )


def _curve(gate: ToyGate, span: int, rate: float, steps: NDArray[numpy.int64], times: Numbers) -> ToyCurve:
    late = numpy.array([times[-1] / 100, times[-1]])
    flow = _flow(gate, span, numpy.concatenate((times, late[:1])))
    flow, early = flow[:-1], flow[-1]
    bound = gate.bound(times, span)
    return ToyCurve(
        descent=_descent(gate, span, rate, steps),
        flow=flow,
        bound=bound,
        rate=gate.rate,
        measured_slope=_slope(early, flow[-1]),
        derived_slope=_slope(*gate.bound(late, span)),
        bound_over_flow=float(bound[-1] / flow[-1]),
    )


def _descent(gate: ToyGate, span: int, rate: float, shown: NDArray[numpy.int64]) -> Numbers:
    """1 - f after each of the steps in `shown`."""
    wanted = set(shown.tolist())
    z = gate.start(MATCHED)
    found = []
    for step in range(1, int(shown[-1]) + 1):
        left = gate.left(z)
        z += rate * span * (1 - left) ** (span - 1) * gate.speed(left)
        if step in wanted:
            found.append(gate.left(z))
    return numpy.array(found)


def _flow(gate: ToyGate, span: int, times: Numbers) -> Numbers:
    """1 - f at each time; times need not be sorted.

    Solved for log u over log(1 + tau), where all curves are nearly straight lines.
    """
    from scipy.integrate import solve_ivp

    def slope(stretched: float, log_left: Numbers) -> list[float]:
        left = math.exp(log_left[0])
        return [-math.exp(stretched) * gate.speed(left) ** 2 * span * (1 - left) ** (span - 1) / left]

    end = math.log1p(float(times.max()))
    solved = solve_ivp(slope, (0, end), [math.log(MATCHED)], method="DOP853", dense_output=True, rtol=1e-10, atol=1e-12)
    if not solved.success:
        raise RuntimeError(f"expected the flow of gate {gate.name} to be solved, got: {solved.message}")
    left: Numbers = numpy.exp(solved.sol(numpy.log1p(times))[0])
    return left


def _slope(early: float, late: float) -> float:
    """Log-log slope between two values two decades apart."""
    return float(math.log10(late / early) / 2)


def _printed_slope(end: float) -> float:
    from scipy.special import lambertw

    early, late = (float(lambertw(time**-0.5).real) ** 2 for time in (end / 100, end))
    return _slope(early, late)
