"""Assigned timescales compared with those estimated on a text (figure 4 of the multi-timescale paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

from .arrays import Numbers, numbers
from .plain import Result


@dataclass(frozen=True, eq=False)
class AssignedEstimated(Result):
    """Timescales of the units of a layer from its biases, and from its forget values on a text."""

    assigned: Numbers
    """In the order of the units, `(H,)`."""
    estimated: Numbers
    """`(H,)`."""
    spearman: float
    """Rank correlation."""
    log_pearson: float
    """Pearson correlation of the logarithms."""
    left_out: int
    """Units with a timescale of zero or infinity, which has no finite logarithm; they count in the ranks only."""


def assigned_against_estimated(assigned: Any, estimated: Any) -> AssignedEstimated:
    """Correlate assigned and estimated timescales.

    Args:
        assigned: `(H,)`, such as an entry of `remanence.timescales.of(layer)`.
        estimated: `(H,)`, the same entry of `remanence.timescales.estimate(layer, batches)` or `estimated_timescales`.
    """
    from scipy.stats import rankdata

    given, found = numbers(assigned), numbers(estimated)
    if given.ndim != 1 or given.shape != found.shape or len(given) < 2:
        raise ValueError(
            f"expected assigned and estimated timescales of at least two units, got {given.shape} and {found.shape}"
        )
    pairs = numpy.stack((given, found))
    if numpy.isnan(pairs).any() or (pairs < 0).any():
        raise ValueError("expected timescales of zero or more, got a negative one or NaN")
    usable = (numpy.isfinite(pairs) & (pairs > 0)).all(0)
    return AssignedEstimated(
        assigned=given,
        estimated=found,
        spearman=_correlation(*rankdata(pairs, axis=1)),
        log_pearson=_correlation(*numpy.log(pairs[:, usable])),
        left_out=int((~usable).sum()),
    )


def _correlation(one: Numbers, two: Numbers) -> float:
    """Pearson's correlation; NaN if one of them is constant."""
    if len(one) < 2 or numpy.ptp(one) == 0 or numpy.ptp(two) == 0:
        return float("nan")
    return float(numpy.corrcoef(one, two)[0, 1])
