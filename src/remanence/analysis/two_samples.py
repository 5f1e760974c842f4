"""The two-sample t test and effect size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
from torch import Tensor

from .plain import Result


@dataclass(frozen=True)
class TwoSamples(Result):
    """Comparison of two samples."""

    counts: tuple[int, int]
    """Sizes of the samples."""
    means: tuple[float, float]
    """Means of the samples."""
    stds: tuple[float, float]
    """Sample standard deviations."""
    t: float
    """Student's t with pooled variances; positive if the first mean is larger."""
    degrees_of_freedom: int
    """Degrees of freedom of the test."""
    p_value: float
    """Two-sided."""
    cohens_d: float
    """Difference of the means in units of the pooled standard deviation."""


def two_samples(first: Any, second: Any) -> TwoSamples:
    """Student's two-sample t test and Cohen's d.

    Args:
        first: a sample, such as the exponents p of one model.
        second: the sample to compare it with; its size may differ.
    """
    from scipy.stats import ttest_ind

    one, two = (_numbers(sample) for sample in (first, second))
    freedom = len(one) + len(two) - 2
    variance = ((len(one) - 1) * one.var(ddof=1) + (len(two) - 1) * two.var(ddof=1)) / freedom
    if not variance > 0:
        raise ValueError("expected values that vary within at least one sample, got constants")
    test = ttest_ind(one, two)
    return TwoSamples(
        counts=(len(one), len(two)),
        means=(float(one.mean()), float(two.mean())),
        stds=(float(one.std(ddof=1)), float(two.std(ddof=1))),
        t=float(test.statistic),
        degrees_of_freedom=freedom,
        p_value=float(test.pvalue),
        cohens_d=float((one.mean() - two.mean()) / numpy.sqrt(variance)),
    )


def _numbers(sample: Any) -> numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]:
    values = sample.detach().cpu().numpy() if isinstance(sample, Tensor) else numpy.asarray(sample)
    values = values.astype(numpy.float64).reshape(-1)
    if len(values) < 2 or not numpy.isfinite(values).all():
        raise ValueError(f"expected at least two finite values in a sample, got {values[:3].tolist()}")
    return values
