"""Differences of means and their intervals, against the tests of scipy."""

import math
import statistics

import pytest
from scipy import stats

from remanence.report.difference import Sample, difference

OURS = [98.25, 97.95, 97.9, 98.5, 97.95]
THEIRS = [89.15, 87.65, 87.9]


def test_two_samples_are_compared_as_welch_does():
    found = difference(Sample.of(OURS), Sample.of(THEIRS))
    known = stats.ttest_ind(OURS, THEIRS, equal_var=False)
    interval = known.confidence_interval(0.95)
    assert found.value == pytest.approx(statistics.fmean(OURS) - statistics.fmean(THEIRS))
    assert (found.p, found.low, found.high) == pytest.approx((known.pvalue, interval.low, interval.high))
    assert found.spread == "both"
    assert found.is_clear


def test_a_published_mean_with_a_standard_deviation_brings_its_own_uncertainty():
    found = difference(Sample.of(OURS), Sample(92.57, 0.5, 5))
    known = stats.ttest_ind_from_stats(
        statistics.fmean(OURS), statistics.stdev(OURS), 5, 92.57, 0.5, 5, equal_var=False
    )
    assert found.p == pytest.approx(known.pvalue)
    assert found.error == pytest.approx(math.hypot(statistics.stdev(OURS), 0.5) / math.sqrt(5))


def test_a_published_mean_without_one_is_taken_as_exact():
    found = difference(Sample.of(OURS), Sample(98.0, None, 5))
    known = stats.ttest_1samp(OURS, 98.0)
    interval = known.confidence_interval(0.95)
    assert (found.p, 98 + found.low, 98 + found.high) == pytest.approx((known.pvalue, interval.low, interval.high))
    assert found.spread == "first"
    assert not found.is_clear


def test_a_surer_interval_is_wider():
    narrow, wide = (difference(Sample.of(OURS), Sample.of(THEIRS), level) for level in (0.95, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_one_run_says_nothing_of_the_spread():
    found = difference(Sample.of([98.0]), Sample(92.57, 0.5, 5))
    assert found.value == pytest.approx(5.43)
    assert (found.error, found.low, found.high, found.p, found.is_clear) == (None, None, None, None, False)


@pytest.mark.parametrize(("mean", "p", "clear"), [(1.0, 1.0, False), (0.5, 0.0, True)])
def test_runs_that_are_all_the_same_leave_no_doubt(mean, p, clear):
    found = difference(Sample.of([1.0, 1.0, 1.0]), Sample(mean, None, 1))
    assert (found.low, found.high, found.p, found.is_clear) == (1 - mean, 1 - mean, p, clear)
