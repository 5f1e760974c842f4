"""How far two means are apart, and how sure that is (Welch's t test: the spreads need not be equal)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LEVEL = 0.95


@dataclass(frozen=True)
class Sample:
    """Some runs of one model, summed up."""

    mean: float
    std: float | None
    """Sample standard deviation; None where it is not known."""
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        """From single values."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    @property
    def variance(self) -> float | None:
        """Of the mean."""
        return None if self.std is None or self.count < 2 else self.std**2 / self.count


@dataclass(frozen=True)
class Difference:
    """First mean minus second."""

    value: float
    error: float | None
    """Its standard error; None where there is nothing to tell it from."""
    low: float | None
    """The interval that holds the true difference in 95 of 100 cases, or in another share where that was asked for."""
    high: float | None
    p: float | None
    """Of there being no difference, two-sided."""
    spread: Literal["both", "first", "none"]
    """Whose spread is in the error. With "first" the second mean is taken as exact."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def difference(first: Sample, second: Sample, level: float = LEVEL) -> Difference:
    """The difference of two means with its interval.

    Args:
        first: what was measured here; without a spread there is no interval.
        second: what it is compared with; without a spread its mean is taken as exact.
        level: the share of cases in which the interval holds the true difference.
    """
    from scipy import stats

    value = first.mean - second.mean
    if first.variance is None:
        return Difference(value, None, None, None, None, "none")
    error = math.sqrt(first.variance + (second.variance or 0.0))
    spread: Literal["both", "first"] = "first" if second.variance is None else "both"
    if error == 0:  # all values of each are the same
        return Difference(value, 0.0, value, value, float(value == 0), spread)
    degrees = error**4 / sum(
        sample.variance**2 / (sample.count - 1) for sample in (first, second) if sample.variance is not None
    )
    reach = float(stats.t.ppf((1 + level) / 2, degrees)) * error
    p = 2 * float(stats.t.sf(abs(value) / error, degrees))
    return Difference(value, error, value - reach, value + reach, p, spread)
