"""Exponential and power-law decay compared (pLSTM figure 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from .plain import Result


@dataclass(frozen=True, eq=False)
class DecayCurves(Result):
    """The decay of a cell that is 1 at step 0 and receives no input, `(steps + 1,)` each."""

    steps: NDArray[numpy.int64]
    """0 ... N."""
    exponential: NDArray[numpy.float64]
    """Exponential decay."""
    power_law: NDArray[numpy.float64]
    """Power-law decay."""
    crossing: float | None
    """Number of steps, not an integer, after which the power law keeps more; None if it does from the start."""


def decay_curves(steps: int = 200, rate: float = 0.97, exponent: float = 0.3) -> DecayCurves:
    """Compute both forms of forgetting, step by step.

        exponential    c_n = rate * c_{n-1}
        power law      c_n = ((n + 1) / n)^(-p) * c_{n-1}

    Args:
        steps: number of steps without input.
        rate: forget value of the exponential.
        exponent: p of the power law.
    """
    if steps < 1:
        raise ValueError(f"expected at least one step, got {steps}")
    if not 0 < rate < 1:
        raise ValueError(f"expected rate between 0 and 1, got {rate}")
    if not exponent > 0:
        raise ValueError(f"expected a positive exponent, got {exponent}")
    n = numpy.arange(steps + 1)
    ratios = (1 + 1 / n[1:]) ** -exponent
    return DecayCurves(
        steps=n,
        exponential=rate ** n.astype(float),
        power_law=numpy.concatenate(([1.0], numpy.cumprod(ratios))),
        crossing=_crossing(rate, exponent),
    )


def _crossing(rate: float, exponent: float) -> float | None:
    """The solution n of rate^n = (n + 1)^-p other than n = 0.

    With s = -log(rate) / p and u = n + 1 this is -s u exp(-s u) = -s exp(-s): one branch of the Lambert W function
    gives u = 1, the other the crossing, which is after the start if s < 1.
    """
    from scipy.special import lambertw

    scaled = -math.log(rate) / exponent
    if scaled >= 1:
        return None
    return float(-lambertw(-scaled * math.exp(-scaled), -1).real / scaled - 1)
