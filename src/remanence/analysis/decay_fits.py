"""Fits of exponentials and power laws to decay curves.

    exponential    y_n = A exp(-n / T)
    power law      y_n = A (1 + n / a)^(-p)

Both are fitted to the logarithm of a curve by least squares. The power law has an age a, because the memory of a unit
may be older than the first point of the curve. With a = 1 it is (n + 1)^(-p). As a grows it becomes the exponential, so
it always fits about as well; Akaike's information criterion decides whether the third parameter is worth it, and an age
far beyond the last point counts as an exponential.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

from .arrays import Integers, Numbers, numbers
from .plain import Result

LEAST_POINTS = 5
"""Fewer points cannot distinguish two curves with up to three parameters."""
ROUNDING = 1e-4
"""Relative errors below this are rounding, and no reason to prefer one form."""
OLDEST = 10.0
"""Above this many times the last step, an age is no sign of a power law: the rate of decay, p / (a + n), changes by
less than a tenth over the curve, as it also does for other slow bends, such as a sum of similar exponentials."""
AGES = 121
"""Number of ages on the grid before the best one is refined."""

HALVINGS = 60
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, eq=False)
class DecayFits(Result):
    """Both forms fitted to C curves, `(C,)` each; NaN if a curve has too few points above the floor."""

    points: Integers
    """Number of fitted points, before a curve falls below the floor."""
    timescale: Numbers
    """T of the exponential, in steps; infinite if nothing decays."""
    exponential_amplitude: Numbers
    """Value of the fitted exponential at step 0."""
    exponential_error: Numbers
    """Root mean square residual of log y."""
    exponential_aic: Numbers
    """Akaike information criterion of the exponential."""
    exponent: Numbers
    """p of the power law; zero if nothing decays."""
    age: Numbers
    """a of the power law, in steps."""
    power_law_amplitude: Numbers
    """Value of the fitted power law at step 0."""
    power_law_error: Numbers
    """Root mean square residual of log y."""
    power_law_aic: Numbers
    """Akaike information criterion of the power law."""
    better: list[str | None]
    """"exponential" or "power law", whichever has the smaller AIC; "exponential" too if the age is more than `OLDEST`
    times the last fitted step; None if neither was fitted."""

    def exponential(self, steps: Any) -> Numbers:
        """The fitted exponentials at the given steps, `(N, C)`."""
        curves: Numbers = self.exponential_amplitude * numpy.exp(-numbers(steps)[:, None] / self.timescale)
        return curves

    def power_law(self, steps: Any) -> Numbers:
        """The fitted power laws at the given steps, `(N, C)`."""
        curves: Numbers = self.power_law_amplitude * (1 + numbers(steps)[:, None] / self.age) ** -self.exponent
        return curves


def fit_decay(steps: Any, curves: Any, *, floor: float = 1e-6) -> DecayFits:
    """Fit both forms to curves.

    Args:
        steps: `(N,)`, from zero on.
        curves: `(N, C)`, or `(N,)` for one.
        floor: a curve is fitted up to its first value below this, from which on it is rounding error or zero.
    """
    n, y = numbers(steps), numbers(curves)
    y = y[:, None] if y.ndim == 1 else y
    if n.ndim != 1 or y.ndim != 2 or len(n) != len(y) or not y.size:
        raise ValueError(f"expected one value of every curve for every step, got {n.shape} and {y.shape}")
    if not (n >= 0).all() or not numpy.isfinite(n).all() or len(set(n.tolist())) < len(n):
        raise ValueError("expected distinct steps of zero or more, got negative, infinite or repeated ones")
    if not floor > 0:
        raise ValueError(f"expected a floor above zero, got {floor}")
    with numpy.errstate(invalid="ignore"):  # a NaN curve has no point above the floor
        used = numpy.logical_and.accumulate(y >= floor, axis=0) & numpy.isfinite(y)
    points = used.sum(0)
    enough = points >= LEAST_POINTS
    logs = numpy.log(numpy.where(used, y, 1.0))
    weights = used / numpy.maximum(points, 1)  # weights of the mean over the points of every curve
    x = n[:, None]
    start, slope, squares = _line(x, logs, weights)
    age = _best_age(x, logs, weights)
    power_start, power, power_squares = _line(numpy.log1p(x / age), logs, weights)
    with numpy.errstate(divide="ignore"):  # no decay: an infinite timescale
        timescale = 1 / numpy.abs(slope)
    parts = {
        "timescale": timescale,
        "exponential_amplitude": numpy.exp(start),
        "exponential_error": numpy.sqrt(squares),
        "exponential_aic": _aic(squares, points, 2),
        "exponent": numpy.abs(power),
        "age": age,
        "power_law_amplitude": numpy.exp(power_start),
        "power_law_error": numpy.sqrt(power_squares),
        "power_law_aic": _aic(power_squares, points, 3),
    }
    parts = {name: numpy.where(enough, values, numpy.nan) for name, values in parts.items()}
    last = numpy.where(used, x, 0.0).max(0)
    simpler = (parts["exponential_aic"] <= parts["power_law_aic"]) | (age > OLDEST * last)
    words = [("exponential" if left else "power law") if ok else None for left, ok in zip(simpler, enough, strict=True)]
    return DecayFits(points=points, better=words, **parts)


def _best_age(x: Numbers, logs: Numbers, weights: Numbers) -> Numbers:
    """The age at which a power law fits best, `(C,)`: grid search, then golden-section search between neighbours."""
    ages = numpy.log(numpy.geomspace(0.1, 1000 * max(1.0, float(x.max())), AGES))

    def squares(age: Numbers) -> Numbers:
        return _line(numpy.log1p(x / numpy.exp(age)), logs, weights)[2]

    best = numpy.stack([squares(numpy.full(logs.shape[1], age)) for age in ages]).argmin(0)
    low, high = ages[numpy.maximum(best - 1, 0)], ages[numpy.minimum(best + 1, AGES - 1)]
    for _ in range(HALVINGS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        lower = squares(left) < squares(right)
        low, high = numpy.where(lower, low, left), numpy.where(lower, right, high)
    found: Numbers = numpy.exp((low + high) / 2)
    return found


def _line(x: Numbers, y: Numbers, weights: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Intercept, slope and mean square residual of the best line that does not rise, `(C,)` each.

    Args:
        x: `(N, C)` or `(N, 1)`.
        y: `(N, C)`.
        weights: `(N, C)`; every column sums to one, or to zero if it has no points.
    """
    x_mean, y_mean = (weights * x).sum(0), (weights * y).sum(0)
    centred = x - x_mean
    spread = (weights * centred * centred).sum(0)
    slope = numpy.minimum(0.0, (weights * centred * y).sum(0) / numpy.where(spread > 0, spread, 1.0))
    intercept = y_mean - slope * x_mean
    return intercept, slope, (weights * numpy.square(y - intercept - slope * x)).sum(0)


def _aic(squares: Numbers, points: Integers, parameters: int) -> Numbers:
    """Akaike's information criterion for Gaussian residuals; their variance is one more parameter."""
    found: Numbers = points * numpy.log(numpy.maximum(squares, ROUNDING**2)) + 2 * (parameters + 1)
    return found
