"""Difference of two means with a confidence interval (Welch's t test: the variances need not be equal)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..table import spread_of

LEVEL = 0.95


@dataclass(frozen=True)
class Sample:
    """Summary statistics of the runs of one model."""

    mean: float
    std: float | None
    """Sample standard deviation; None if unknown."""
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        """Summarise single values."""
        return cls(statistics.fmean(values), spread_of(values), len(values))

    @property
    def variance(self) -> float | None:
        """Variance of the mean."""
        return None if self.std is None or self.count < 2 else self.std**2 / self.count


@dataclass(frozen=True)
class Difference:
    """First mean minus second."""

    value: float
    error: float | None
    """Its standard error; None if it cannot be estimated."""
    low: float | None
    """Lower end of the confidence interval, 95 % by default."""
    high: float | None
    """Upper end of the confidence interval."""
    p: float | None
    """Two-sided p value of no difference."""
    spread: Literal["both", "first", "none"]
    """Whose spread the error includes. With "first" the second mean is treated as exact."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def difference(first: Sample, second: Sample, level: float = LEVEL) -> Difference:
    """The difference of two means with its confidence interval.

    Args:
        first: the measured sample; without a spread there is no interval.
        second: the sample to compare with; without a spread its mean is treated as exact.
        level: confidence level of the interval.
    """
    from scipy import stats

    value = first.mean - second.mean
    if first.variance is None:
        return Difference(value, None, None, None, None, "none")
    error = math.sqrt(first.variance + (second.variance or 0.0))
    spread: Literal["both", "first"] = "first" if second.variance is None else "both"
    if error == 0:  # both samples have no spread
        return Difference(value, 0.0, value, value, float(value == 0), spread)
    degrees = error**4 / sum(
        sample.variance**2 / (sample.count - 1) for sample in (first, second) if sample.variance is not None
    )
    reach = float(stats.t.ppf((1 + level) / 2, degrees)) * error
    p = 2 * float(stats.t.sf(abs(value) / error, degrees))
    return Difference(value, error, value - reach, value + reach, p, spread)


def from_zero(values: Sequence[float]) -> Difference:
    """How far the mean of these values is from zero, by their spread: the t test of one sample, or of paired ones."""
    return difference(Sample.of(values), Sample(0.0, None, 1))
