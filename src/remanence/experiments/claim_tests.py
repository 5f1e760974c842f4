"""The statistical tests that decide parts of claims, by their field in `claims.yaml`."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from ..report.difference import Difference, Sample, difference, from_zero
from ..report.section import Verdict
from ..training.schedule import lower_is_better
from .results import FAILED, Outcome
from .schema import Experiment

ERROR = 0.05
"""Significance level of a claim (false positive rate), split over the comparisons that the claim needs."""
FEWEST = 3
"""Minimum number of runs per model to conclude agreement, or for a rank test."""
RANKS = "rank test"


@dataclass(frozen=True)
class Evidence:
    """The data that a test of a claim uses."""

    experiment: Experiment
    found: Mapping[str, list[Outcome]]
    """Runs with a result, by model."""
    changed: str = ""
    """How these runs differ from the published setup, in words."""
    published_runs: int = 1
    """Number of runs behind a published standard deviation."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Findings of an analysis or simulation, or of the analysis that training ends with."""

    def scores(self, model: str) -> list[float]:
        """Scores of the runs that have not failed, scaled for display."""
        runs = self.found.get(model, ())
        scale = self.experiment.report.scale
        return [run.score * scale for run in runs if run.score is not None and not run.failed]

    def lower_is_better(self) -> bool:
        """Whether a lower score is better."""
        task = next(iter(self.experiment.models.values())).task
        return lower_is_better(task, self.experiment.report.score)

    def unfinished(self, models: Sequence[str]) -> bool:
        """Whether a run of these models is unfinished, so that its score may still change."""
        return any(run.unfinished for name in models for run in self.found.get(name, ()))

    def missing(self, models: Sequence[str]) -> list[str]:
        """Models without a result."""
        return [name for name in models if not self.found.get(name)]

    def shown(self, value: float, sign: str = "") -> str:
        """A score with the number of digits of the report."""
        return f"{value:{sign}.{self.experiment.report.digits}f}"


def best(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether the first model (or each of the first) has a better mean score than each of the others."""
    firsts = [part["best"]] if isinstance(part["best"], str) else part["best"]
    others = part["of"]
    sign = -1 if evidence.lower_is_better() else 1
    if not all(map(evidence.scores, (*firsts, *others))):
        return "open", no_mean((*firsts, *others), evidence)
    samples = {name: Sample.of(evidence.scores(name)) for name in (*firsts, *others)}
    compared = {(first, name): difference(samples[first], samples[name]) for first in firsts for name in others}
    words = [
        f"{first} {evidence.shown(samples[first].mean)} against {name} {evidence.shown(samples[name].mean)}: "
        f"{in_words(one, evidence)}"
        for (first, name), one in compared.items()
    ]
    limit = ERROR / len(compared)
    # A single run is not a mean that could be treated as exact.
    tested = [(sign * one.value, one.p if one.spread == "both" else None) for one in compared.values()]
    return ordered(tested, limit), "; ".join(words) + "."


def no_mean(names: Sequence[str], evidence: Evidence) -> str:
    """Why one of these models has no mean score."""
    without = [name for name in names if not evidence.scores(name)]
    if evidence.unfinished(without):
        return f"There is no score of {', '.join(without)} yet: runs are unfinished."
    return "All runs of one of these models have failed, so there is no mean to compare."


def alike(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether the mean scores of these models differ by at most `within`, pairwise."""
    names, within = part["alike"], part["within"]
    if not all(map(evidence.scores, names)):
        return "open", no_mean(names, evidence)
    samples = {name: Sample.of(evidence.scores(name)) for name in names}
    pairs = list(combinations(names, 2))
    compared = [difference(samples[one], samples[other], 1 - ERROR / len(pairs)) for one, other in pairs]
    means = ", ".join(f"{name} {evidence.shown(sample.mean)}" for name, sample in samples.items())
    because = f"Means: {means}; alike means at most {within:g} apart, including the spread of the runs."
    # A single run is not a mean that could be treated as exact.
    ends = [(one.low, one.high) for one in compared if one.spread == "both"]
    sure = [(low, high) for low, high in ends if low is not None and high is not None]
    if any(low > within or high < -within for low, high in sure):
        return "does not hold", because
    near = len(sure) == len(pairs) and all(-within <= low and high <= within for low, high in sure)
    return ("holds" if near else "open"), because


def ordered(compared: Sequence[tuple[float, float | None]], limit: float) -> Verdict:
    """Verdict from differences (positive as claimed) and their p values."""
    clear = [(value, p is not None and p < limit) for value, p in compared]
    if all(value > 0 and sure for value, sure in clear):
        return "holds"
    return "does not hold" if any(value < 0 and sure for value, sure in clear) else "open"


def in_words(one: Difference, evidence: Evidence) -> str:
    """A difference with its confidence interval and p value."""
    value = evidence.shown(one.value, "+")
    if one.low is None or one.high is None or one.p is None or one.spread != "both":
        return f"{value}, with too few runs for an interval"
    return f"{value} (95 %: {evidence.shown(one.low)} to {evidence.shown(one.high)}, p {p_value(one.p)})"


def p_value(p: float) -> str:
    """Format a p value."""
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def fewest(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether the first model reaches the level after fewer updates than each of the others.

    If neither of two models ever reaches it, a clearly better score of the other after as many updates refutes that.
    """
    first, others = part["fewest"], part["of"]
    converged = part.get("until") == "converged"
    found = {name: [Reached.of(run, converged) for run in evidence.found[name]] for name in (first, *others)}
    words = "; ".join(f"{name} {reached(runs)}" for name, runs in found.items())
    goal = "the stopping rule of the authors" if converged else f"a validation {level_of(evidence)}"
    because = f"Updates to {goal}: {words}."
    compared = {name: earlier(found[first], found[name]) for name in others}
    tests = [f"{name}, {one.test}: p {p_value(one.p)}" for name, one in compared.items() if one and one.p is not None]
    if tests:
        because += f" {first} against {'; '.join(tests)}."
    limit = ERROR / len(others)
    verdicts = [faster(one, found[first], found[name], limit) for name, one in compared.items()]
    ahead = [] if converged else [name for name in others if ahead_without_reaching(name, first, evidence, limit)]
    if ahead:
        means = ", ".join(
            f"{name} {evidence.shown(statistics.fmean(evidence.scores(name)))}" for name in (first, *ahead)
        )
        return "does not hold", f"{because} After as many updates: {means}."
    if all(one == "holds" for one in verdicts):
        return "holds", because
    return ("does not hold" if "does not hold" in verdicts else "open"), because


def ahead_without_reaching(name: str, first: str, evidence: Evidence, limit: float) -> bool:
    """Whether neither reached the level, and a model scored clearly better than the first after as many updates."""
    if evidence.unfinished([name, first]):
        return False
    runs = [*evidence.found[first], *evidence.found[name]]
    theirs, ours = evidence.scores(name), evidence.scores(first)
    if len({run.updates for run in runs}) > 1 or any(run.updates_to_reach for run in runs):
        return False
    if min(len(theirs), len(ours)) < 2:
        return False
    one = difference(Sample.of(theirs), Sample.of(ours))
    sign = -1 if evidence.lower_is_better() else 1
    return ordered([(sign * one.value, one.p)], limit) == "holds"


class Reached(NamedTuple):
    """When a run reached a level."""

    updates: int | None
    """None for never."""
    trained: float
    """Updates for which it was trained; infinite if it has failed, as more would not help it."""
    ended: bool = True

    @classmethod
    def of(cls, run: Outcome, converged: bool) -> Reached:
        """When a run converged by its stopping rule, or reached the level of the experiment."""
        trained = math.inf if run.status in FAILED else run.updates
        reached = run.updates_to_reach
        if converged:
            reached = run.updates if run.status == "converged" else None
        return cls(reached, trained, not run.unfinished)


class Earlier(NamedTuple):
    """How much earlier one model reaches a level than another."""

    test: str
    value: float
    """Positive if it is earlier; in updates, or in ranks if some runs never reach the level."""
    p: float | None


def earlier(first: Sequence[Reached], second: Sequence[Reached]) -> Earlier | None:
    """Test whether one model reaches a level before another; None if no run of either reaches it."""
    ours, theirs = ([float(run.updates) for run in runs if run.updates is not None] for runs in (first, second))
    if not ours and not theirs:
        return None
    if len(ours) == len(first) > 1 and len(theirs) == len(second) > 1:
        one = difference(Sample.of(theirs), Sample.of(ours))
        return Earlier("Welch's test", one.value, one.p)
    # A run that never reaches the level has no number, only a rank.
    return Earlier(RANKS, *rank_test([run.updates for run in first], [run.updates for run in second]))


def faster(one: Earlier | None, first: Sequence[Reached], second: Sequence[Reached], limit: float) -> Verdict:
    """Whether one model reaches the level before another, from how much `earlier` it does."""
    few = min(len(first), len(second)) < FEWEST
    if one is None or (one.test == RANKS and (few or one_ends_too_early([*first, *second]))):
        return "open"
    return ordered([(one.value, one.p)], limit)


def one_ends_too_early(runs: Sequence[Reached]) -> bool:
    """Whether a run that never reached the level was not trained for as long as the slowest one that did."""
    slowest = max(run.updates for run in runs if run.updates is not None)
    return any(run.updates is None and run.trained < slowest for run in runs)


def rank_test(first: Sequence[int | None], second: Sequence[int | None]) -> tuple[float, float]:
    """Mann-Whitney test of two models, where never comes after all numbers; exact, also with equal numbers.

    Returns:
        How much earlier the first is, in ranks, and the two-sided p value.
    """
    values = [math.inf if updates is None else updates for updates in (*first, *second)]
    ranks = [2 * sum(other < value for other in values) + values.count(value) + 1 for value in values]  # twice the rank
    ways: list[Counter[int]] = [Counter({0: 1}), *(Counter() for _ in first)]
    """How many ways there are to choose so many runs with this sum of ranks."""
    for rank in ranks:
        for count in range(len(first), 0, -1):
            for total, number in ways[count - 1].items():
                ways[count][total + rank] += number
    mean, found = len(first) * (len(values) + 1), sum(ranks[: len(first)])
    extreme = sum(number for total, number in ways[-1].items() if abs(total - mean) >= abs(found - mean))
    return (mean - found) / 2, extreme / math.comb(len(values), len(first))


def learn(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether every run of these models reaches the level.

    An unfinished run may still reach it; so may one that has not failed, if the paper does not say how long it trained.
    """
    missed = [run for name in part["learn"] for run in evidence.found[name] if run.updates_to_reach is None]
    if not missed:
        return "holds", counted(part["learn"], evidence)
    short = part.get("length") == "unknown"
    undecided = all(run.unfinished or (short and run.status == "not converged") for run in missed)
    return ("open" if evidence.changed or undecided else "does not hold"), counted(part["learn"], evidence)


def fail(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether no run of these models reaches the level."""
    runs = [run for name in part["fail"] for run in evidence.found[name]]
    if any(run.updates_to_reach is not None for run in runs):
        return "does not hold", counted(part["fail"], evidence)
    undecided = evidence.unfinished(part["fail"])
    return ("open" if evidence.changed or undecided else "holds"), counted(part["fail"], evidence)


def not_always(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether some run of these models does not reach the level. If all do, that may be luck and decides nothing."""
    runs = [run for name in part["not_always"] for run in evidence.found[name]]
    missed = any(run.updates_to_reach is None and not run.unfinished for run in runs)
    return ("holds" if missed and not evidence.changed else "open"), counted(part["not_always"], evidence)


def counted(models: Sequence[str], evidence: Evidence) -> str:
    """How many runs reached the level, in words."""
    words = []
    for name in models:
        runs = evidence.found[name]
        words.append(f"{sum(run.updates_to_reach is not None for run in runs)} of {len(runs)} runs of {name}")
    return f"A validation {level_of(evidence)} was reached by {', '.join(words)}."


def never_fails(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether no run of the first model has failed, but some of each of the others have, too many for chance."""
    first, others = part["never_fails"], part["others"]
    failed = {name: sum(run.failed for run in evidence.found[name]) for name in (first, *others)}
    because = ", ".join(f"{count} of {len(evidence.found[name])} runs of {name}" for name, count in failed.items())
    if failed[first]:
        return "does not hold", f"Failed: {because}."
    runs = len(evidence.found[first])
    by_chance = max(chance_that_all_are(failed[name], runs, len(evidence.found[name])) for name in others)
    because = f"Failed: {because}; if all fail equally often, such a difference has a probability of {by_chance:.2g}."
    sure = by_chance <= ERROR and not evidence.unfinished([first])
    return ("holds" if sure else "open"), because


def chance_that_all_are(failed: int, runs: int, others: int) -> float:
    """Fisher's exact test: the probability that all runs that failed are among the others."""
    return math.comb(others, failed) / math.comb(runs + others, failed)


def rising(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether the numbers in the findings rise from the first to the last, beyond their spread if there are several."""
    found = {path: Sample.of(numbers_at(evidence.data, path)) for path in part["rising"]}
    words = ", ".join(f"{readable(path)} {sample.mean:.4g}" for path, sample in found.items())
    steps = [difference(high, low) for low, high in pairwise(found.values())]
    if all(sample.count == 1 for sample in found.values()):  # computed exactly
        return ("holds" if all(step.value > 0 for step in steps) else "does not hold"), f"Found: {words}."
    tested = [(step.value, step.p if step.spread == "both" else None) for step in steps]
    tests = ", ".join(f"p {p_value(p)}" for _, p in tested if p is not None)
    return ordered(tested, ERROR / len(steps)), f"Found: {words}{tests and f' ({tests})'}."


def positive(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether each of several named numbers in the findings, with one value per run, is above zero on average."""
    compared, words = [], []
    for name, path in part["positive"].items():
        values = numbers_at(evidence.data, path)
        one = from_zero(values)
        p = one.p if len(values) >= FEWEST else None
        compared.append((one.value, p))
        words.append(f"{name} {one.value:+.4g} over {runs_of(len(values))}{'' if p is None else f', p {p_value(p)}'}")
    few = " There are too few runs to conclude more." if any(p is None for _, p in compared) else ""
    return ordered(compared, ERROR / len(compared)), f"Mean difference, t test: {'; '.join(words)}.{few}"


def runs_of(count: int) -> str:
    """A number of runs, in words."""
    return f"{count} run{'' if count == 1 else 's'}"


def near(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether the numbers in the findings are within `within` of the claimed ones."""
    found = {path: (number_at(evidence.data, path), wanted) for path, wanted in part["near"].items()}
    words = ", ".join(f"{readable(path)} {value:.4g} ({wanted:g} claimed)" for path, (value, wanted) in found.items())
    agree = all(abs(value - wanted) <= part["within"] for value, wanted in found.values())
    return ("holds" if agree else "does not hold"), f"Found, tolerance {part['within']:g}: {words}."


def above(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether all numbers in the findings are above the given bounds."""
    found = {path: (min(numbers_at(evidence.data, path)), bound) for path, bound in part["above"].items()}
    words = ", ".join(f"{readable(path)} {value:.4g} (above {bound:g})" for path, (value, bound) in found.items())
    return ("holds" if all(value > bound for value, bound in found.values()) else "does not hold"), f"Found: {words}."


def some_above(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether some of the numbers at each path in the findings are above the given bound.

    That one is shows that it can happen. If none is, that may be luck and decides nothing.
    """
    found = {path: numbers_at(evidence.data, path) for path in part["some_above"]}
    over = {path: sum(value > part["some_above"][path] for value in values) for path, values in found.items()}
    words = ", ".join(
        f"{readable(path)} above {part['some_above'][path]:g} in {over[path]} of {runs_of(len(values))}"
        for path, values in found.items()
    )
    return ("holds" if all(over.values()) else "open"), f"Found: {words}."


def readable(path: str) -> str:
    """The path of a number in words."""
    words = path.replace(".*", "").replace(".-1", " at the end").replace(".", " ").replace("_", " ")
    return re.sub(r"\[\w+=(.*?)\]", r"\1", words)


def number_at(data: Mapping[str, Any], path: str) -> float:
    """The number at a path, or the mean if there are several."""
    return statistics.fmean(numbers_at(data, path))


def numbers_at(data: Any, path: str) -> list[float]:
    """The numbers at a dotted path of names and list indices; a star matches all entries, `[key=value]` some."""
    found = [data]
    try:
        for name in re.split(r"\.(?![^\[]*\])", path):
            if name.startswith("["):
                key, _, wanted = name.strip("[]").partition("=")
                found = [one for value in found for one in value if str(one[key]) == wanted]
            elif name == "*":
                found = [one for value in found for one in (value if isinstance(value, list) else value.values())]
            else:
                found = [value[int(name)] if isinstance(value, list) else value[name] for value in found]
        return [float(value) for value in found] or [float("")]
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError(f"expected a number at {path} of the result, got none; run it again") from None


def reached(runs: Sequence[Reached]) -> str:
    """Updates to reach the level, for every run."""
    words = [f"{run.updates:,}" for run in runs if run.updates is not None]
    for word, ended in (("never", True), ("not yet", False)):
        count = sum(run.updates is None and run.ended is ended for run in runs)
        words += [f"{word} in {runs_of(count)}"] if count else []
    return ", ".join(words)


def level_of(evidence: Evidence) -> str:
    """The score that counts as having learned the task."""
    report = evidence.experiment.report
    if report.reach is None:
        raise ValueError(f"expected {evidence.experiment.id} to have report.reach, got none")
    unit = f" {report.unit}" if report.unit else ""
    return f"{report.score} of {report.reach * report.scale:g}{unit}"


Test = Callable[[Mapping[str, Any], Evidence], tuple[Verdict, str]]
KNOWN: dict[str, Test] = {
    "best": best,
    "alike": alike,
    "fewest": fewest,
    "learn": learn,
    "fail": fail,
    "not_always": not_always,
    "never_fails": never_fails,
    "rising": rising,
    "positive": positive,
    "near": near,
    "above": above,
    "some_above": some_above,
}
"""Tests by their field in claims.yaml."""
OF_ENDED = ("best", "alike")
"""Tests that decide nothing while runs are unfinished."""
OF_DATA = ("rising", "positive", "near", "above", "some_above")
"""Tests on the findings of an analysis or simulation, not on models."""


def models_of(part: Mapping[str, Any]) -> list[str]:
    """Models that a test uses."""
    named = [part[name] for name in (*KNOWN, "of", "others") if name in part and name not in OF_DATA]
    return [model for one in named for model in ([one] if isinstance(one, str) else one)]
