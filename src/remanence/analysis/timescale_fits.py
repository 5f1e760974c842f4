"""Fits of distributions to the timescales of a network (figure 1 of the multi-timescale paper).

The Kolmogorov-Smirnov statistic is the largest difference between the fraction of units below a timescale and the
distribution function there. Two families are fitted by grid search: inverse gamma, which a power law in the text
implies, and a narrow Gaussian, one timescale for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from .arrays import Numbers, numbers
from .plain import Result

ALPHAS = numpy.arange(6, 61) / 20
"""Shapes of inverse gamma distributions: 0.3 to 3 in steps of 0.05."""
MEANS = numpy.arange(1, 61) / 20
"""Means of Gaussians: 0.05 to 3 in steps of 0.05."""
SIGMA = 0.1


@dataclass(frozen=True, eq=False)
class Fit(Result):
    """Fit of one family of distributions to the timescales of n units."""

    family: str
    """Name of the family."""
    parameter: str
    """Name of the parameter that varies over the grid."""
    grid: Numbers
    """`(A,)`."""
    statistics: Numbers
    """Kolmogorov-Smirnov statistic at every point of the grid, `(A,)`."""
    best: float
    """The parameter with the smallest statistic."""
    statistic: float
    """The smallest statistic."""
    quantiles: Numbers
    """Timescales of n units under the best fit, long to short, `(n,)`: exceeded with probability 1/n, 2/n, ... 1."""


@dataclass(frozen=True, eq=False)
class TimescaleFits(Result):
    """Timescales of n units and the best-fitting distributions."""

    timescales: Numbers
    """Long to short, `(n,)`."""
    below_10: float
    """Fraction of units with a timescale below ten steps."""
    inverse_gamma: Fit
    """Fit of inverse gamma distributions."""
    gaussian: Fit
    """Fit of Gaussian distributions."""
    better: str
    """The family with the smaller statistic."""


def timescale_fits(
    timescales: Any,
    *,
    alphas: Sequence[float] | Numbers = ALPHAS,
    means: Sequence[float] | Numbers = MEANS,
    sigma: float = SIGMA,
) -> TimescaleFits:
    """Fit both families to the timescales of units.

    Args:
        timescales: timescales of all units, as one array or a list with one array per layer, as returned by
            `remanence.timescales.estimate`.
        alphas: shapes of the inverse gamma distributions, with scale 1.
        means: means of the Gaussians.
        sigma: their standard deviation.
    """
    values = _expect_timescales(timescales)
    units = len(values)
    exceeded = numpy.linspace(0, 1, units + 1)[1:]
    shapes, centres = _grid("alphas", alphas), _grid("means", means)
    if not (shapes > 0).all() or not sigma > 0:
        raise ValueError(f"expected shapes and a standard deviation above zero, got {shapes.min()} and {sigma}")
    fits = []
    for family, parameter, grid, below, isf in (
        ("inverse gamma", "alpha", shapes, inverse_gamma_cdf, inverse_gamma_isf),
        ("gaussian", "mu", centres, lambda x, mu: gaussian_cdf(x, mu, sigma), lambda q, mu: gaussian_isf(q, mu, sigma)),
    ):
        statistics = ks_statistics(values, below(values, grid[:, None]))
        best = int(statistics.argmin())
        fits.append(
            Fit(
                family=family,
                parameter=parameter,
                grid=grid,
                statistics=statistics,
                best=float(grid[best]),
                statistic=float(statistics[best]),
                quantiles=isf(exceeded, grid[best]),
            )
        )
    inverse_gamma, gaussian = fits
    return TimescaleFits(
        timescales=values[::-1].copy(),
        below_10=float((values < 10).mean()),
        inverse_gamma=inverse_gamma,
        gaussian=gaussian,
        better=min(fits, key=lambda fit: fit.statistic).family,
    )


def ks_statistics(values: Numbers, below: Numbers) -> Numbers:
    """One-sample Kolmogorov-Smirnov statistics, `(A,)`.

    Args:
        values: the sample in ascending order, `(n,)`.
        below: the distribution functions of A distributions at the sample, `(A, n)`.
    """
    steps = numpy.arange(len(values) + 1) / len(values)
    result: Numbers = numpy.maximum((steps[1:] - below).max(1), (below - steps[:-1]).max(1))
    return result


def inverse_gamma_cdf(values: Any, alpha: Any) -> Numbers:
    """P(T <= t) for T ~ InvGamma(alpha, scale 1), the regularised upper incomplete gamma function of 1/t."""
    from scipy.special import gammaincc

    with numpy.errstate(divide="ignore"):  # a timescale of zero
        result: Numbers = gammaincc(alpha, 1 / numpy.asarray(values, dtype=numpy.float64))
    return result


def inverse_gamma_isf(exceeded: Any, alpha: Any) -> Numbers:
    """The timescale that T ~ InvGamma(alpha, scale 1) exceeds with a given probability."""
    from scipy.special import gammaincinv

    with numpy.errstate(divide="ignore"):  # probability zero
        result: Numbers = 1 / gammaincinv(alpha, exceeded)
    return result


def gaussian_cdf(values: Any, mu: Any, sigma: float) -> Numbers:
    """P(T <= t) for T ~ N(mu, sigma^2)."""
    from scipy.special import ndtr

    result: Numbers = ndtr((numpy.asarray(values, dtype=numpy.float64) - mu) / sigma)
    return result


def gaussian_isf(exceeded: Any, mu: Any, sigma: float) -> Numbers:
    """The value that T ~ N(mu, sigma^2) exceeds with a given probability."""
    from scipy.special import ndtri

    result: Numbers = mu - sigma * ndtri(exceeded)
    return result


def _expect_timescales(timescales: Any) -> Numbers:
    """In ascending order, `(n,)`."""
    parts = timescales if isinstance(timescales, list | tuple) else [timescales]
    values = numpy.sort(numpy.concatenate([numbers(part).reshape(-1) for part in parts] or [numpy.zeros(0)]))
    # Infinity is allowed: a unit whose forget value is always one.
    if not len(values) or numpy.isnan(values).any() or values[0] < 0:
        raise ValueError(f"expected timescales of at least one unit, none below zero, got {values[:3].tolist()}")
    return values


def _grid(name: str, grid: Sequence[float] | Numbers) -> Numbers:
    values = numbers(grid).reshape(-1)
    if not len(values) or not numpy.isfinite(values).all():
        raise ValueError(f"expected {name} to have at least one value, all finite, got {values[:3].tolist()}")
    return values
