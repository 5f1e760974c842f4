"""Which claims of a paper hold in these runs: decided by a person, or by a plain test where numbers can decide."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from ..names import lookup
from ..report.difference import Difference, Sample, difference
from ..report.section import VERDICTS, Claim, Verdict
from ..training.schedule import lower_is_better
from . import text
from .results import Outcome
from .schema import Experiment

ERROR = 0.05
"""How often a test may see a difference where there is none. Shared by the comparisons of one claim."""
FEWEST = 3
"""Runs of each model from which agreement counts, or an order without exception where there is nothing to test."""
FILE = "verdicts.yaml"
"""Beside the results: what a person has decided, by experiment and preset."""
UNTESTED = "No test on numbers decides this; see the tables and figures."


@dataclass(frozen=True)
class Evidence:
    """What a test looks at."""

    experiment: Experiment
    found: Mapping[str, list[Outcome]]
    """Runs that have ended, by model."""
    changed: str = ""
    """In what these runs are not as published, in words."""
    published_runs: int = 1
    """Behind a published standard deviation."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What an analysis or simulation found."""

    def scores(self, model: str) -> list[float]:
        """Of runs that have not failed, as they are shown."""
        runs = self.found.get(model, ())
        scale = self.experiment.report.scale
        return [run.score * scale for run in runs if run.score is not None and not run.failed]

    def lower_is_better(self) -> bool:
        """Whether the score is better the lower it is."""
        task = next(iter(self.experiment.models.values())).task
        return lower_is_better(task, self.experiment.report.score)

    def missing(self, models: Sequence[str]) -> list[str]:
        """Models without a run that has ended."""
        return [name for name in models if not self.found.get(name)]

    def shown(self, value: float, sign: str = "") -> str:
        """A score with its digits."""
        return f"{value:{sign}.{self.experiment.report.digits}f}"


@dataclass(frozen=True)
class Judgement:
    """What a person wrote about an experiment and preset."""

    claims: Sequence[Claim]
    because: str
    conditions: str


def judgements(folder: Path) -> dict[tuple[str, str], Judgement]:
    """What a person wrote beside the results in a folder, by experiment and preset; empty where nobody did."""
    import yaml

    path = folder / FILE
    try:
        written = text.read(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise ValueError(f"expected verdicts in {path}, got a file that cannot be read: {problem}") from None
    found = {}
    try:
        for id, presets in (written or {}).items():
            for preset, words in presets.items():
                claims = [
                    Claim(str(one["claim"]), expect_verdict(one["verdict"]), str(one.get("because", "")))
                    for one in words.get("claims", [])
                ]
                found[str(id), str(preset)] = Judgement(
                    claims, str(words.get("because", "")), str(words.get("conditions", ""))
                )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected {path} to hold claims with a claim and a verdict by experiment and preset, got: {error}"
        ) from None
    return found


def expect_verdict(word: object) -> Verdict:
    """One of the words there are."""
    lookup("verdict", str(word), dict.fromkeys(VERDICTS))
    return word  # type: ignore[return-value]


@cache
def parts_of_claims() -> dict[str, list[dict[str, Any]]]:
    """The parts of claims by experiment, with their tests. Not to be changed."""
    parts: dict[str, list[dict[str, Any]]] = text.read((files(__package__) / "claims.yaml").read_text("utf-8"))
    return parts


def decide(evidence: Evidence) -> list[Claim]:
    """Every claim of an experiment with what these runs say about it."""
    experiment = evidence.experiment
    parts = parts_of_claims().get(experiment.id) or [{"claim": claim} for claim in experiment.claims]
    claims = [decide_part(part, evidence) for part in parts]
    if experiment.published.get(experiment.report.score) and experiment.kind == "training":
        claims.append(level(evidence))
    return claims


def decide_part(part: Mapping[str, Any], evidence: Evidence) -> Claim:
    """One part of a claim."""
    words = str(part["claim"])
    kind = next((name for name in KNOWN if name in part), None)
    if kind is None:
        return Claim(words, "not tested here", UNTESTED)
    if evidence.experiment.preset == "smoke":
        return Claim(words, "not tested here", "The smoke preset only shows that everything works.")
    missing = evidence.missing(models_of(part))
    if missing:
        return Claim(words, "not tested here", f"No run of {', '.join(missing)} has ended.")
    try:
        return Claim(words, *KNOWN[kind](part, evidence))
    except ValueError as error:
        return Claim(words, "not tested here", f"{error}.")


def models_of(part: Mapping[str, Any]) -> list[str]:
    """Models that a test looks at."""
    named = [part[name] for name in (*KNOWN, "of", "others") if name in part and name not in OF_DATA]
    return [model for one in named for model in ([one] if isinstance(one, str) else one)]


def best(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether the first, or each of the first, has a better mean score than each of the others."""
    firsts = [part["best"]] if isinstance(part["best"], str) else part["best"]
    others = part["of"]
    sign = -1 if evidence.lower_is_better() else 1
    if not all(map(evidence.scores, (*firsts, *others))):
        return "open", "All runs of one of these models have failed, which leaves no mean to compare."
    samples = {name: Sample.of(evidence.scores(name)) for name in (*firsts, *others)}
    compared = {(first, name): difference(samples[first], samples[name]) for first in firsts for name in others}
    words = [
        f"{first} {evidence.shown(samples[first].mean)} against {name} {evidence.shown(samples[name].mean)}: "
        f"{in_words(one, evidence)}"
        for (first, name), one in compared.items()
    ]
    limit = ERROR / len(compared)
    # One run of a model is no mean that could be taken as exact.
    tested = [(sign * one.value, one.p if one.spread == "both" else None) for one in compared.values()]
    return ordered(tested, limit), "; ".join(words) + "."


def alike(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether the mean scores of these models are apart by at most `within`, each from each other."""
    names, within = part["alike"], part["within"]
    if not all(map(evidence.scores, names)):
        return "open", "All runs of one of these models have failed, which leaves no mean to compare."
    samples = {name: Sample.of(evidence.scores(name)) for name in names}
    pairs = list(combinations(names, 2))
    compared = [difference(samples[one], samples[other], 1 - ERROR / len(pairs)) for one, other in pairs]
    means = ", ".join(f"{name} {evidence.shown(sample.mean)}" for name, sample in samples.items())
    because = f"Means: {means}; alike is at most {within:g} apart, with the spread of the runs counted in."
    # One run of a model is no mean that could be taken as exact.
    ends = [(one.low, one.high) for one in compared if one.spread == "both"]
    sure = [(low, high) for low, high in ends if low is not None and high is not None]
    if any(low > within or high < -within for low, high in sure):
        return "does not hold", because
    near = len(sure) == len(pairs) and all(-within <= low and high <= within for low, high in sure)
    return ("holds" if near else "open"), because


def ordered(compared: Sequence[tuple[float, float | None]], limit: float) -> Verdict:
    """From differences, positive where they are as claimed, and the p value of each."""
    clear = [(value, p is not None and p < limit) for value, p in compared]
    if all(value > 0 and sure for value, sure in clear):
        return "holds"
    return "does not hold" if any(value < 0 and sure for value, sure in clear) else "open"


def in_words(one: Difference, evidence: Evidence) -> str:
    """A difference with how sure it is."""
    value = evidence.shown(one.value, "+")
    if one.low is None or one.high is None or one.p is None or one.spread != "both":
        return f"{value}, with too few runs to say how sure that is"
    return f"{value} (95 %: {evidence.shown(one.low)} to {evidence.shown(one.high)}, p {p_value(one.p)})"


def p_value(p: float) -> str:
    """A p value as it is read."""
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def fewest(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether the first reaches the level after fewer updates than each of the others."""
    first, others = part["fewest"], part["of"]
    found = {name: [run.updates_to_reach for run in evidence.found[name]] for name in (first, *others)}
    words = "; ".join(f"{name} {reached(updates)}" for name, updates in found.items())
    because = f"Updates to a validation {level_of(evidence)}: {words}."
    limit = ERROR / len(others)
    verdicts = [faster(evidence.found[first], evidence.found[name], limit) for name in others]
    if all(one == "holds" for one in verdicts):
        return "holds", because
    return ("does not hold" if "does not hold" in verdicts else "open"), because


def faster(first: Sequence[Outcome], second: Sequence[Outcome], limit: float) -> Verdict:
    """Whether one model gets there before another."""
    ours, theirs = (
        [float(run.updates_to_reach) for run in runs if run.updates_to_reach is not None] for runs in (first, second)
    )
    if len(ours) == len(first) > 1 and len(theirs) == len(second) > 1:
        one = difference(Sample.of(theirs), Sample.of(ours))
        return ordered([(one.value, one.p)], limit)
    # A run that does not get there has no number: then there must be no doubt about the order of any two runs.
    if min(len(first), len(second)) < FEWEST:
        return "open"
    return "holds" if all_before(first, second) else "does not hold" if all_before(second, first) else "open"


def all_before(first: Sequence[Outcome], second: Sequence[Outcome]) -> bool:
    """Whether every run of the first got there while every run of the second, which went on as long, had not."""
    if any(run.updates_to_reach is None for run in first):
        return False
    last = max(run.updates_to_reach or 0 for run in first)
    return all((run.updates if run.updates_to_reach is None else run.updates_to_reach - 1) >= last for run in second)


def learn(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether every run of these models reaches the level."""
    runs = [run for name in part["learn"] for run in evidence.found[name]]
    if all(run.updates_to_reach is not None for run in runs):
        return "holds", counted(part["learn"], evidence)
    return ("open" if evidence.changed else "does not hold"), counted(part["learn"], evidence)


def fail(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether no run of these models reaches the level."""
    runs = [run for name in part["fail"] for run in evidence.found[name]]
    if any(run.updates_to_reach is not None for run in runs):
        return "does not hold", counted(part["fail"], evidence)
    return ("open" if evidence.changed else "holds"), counted(part["fail"], evidence)


def not_always(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether some run of these models does not reach the level. That all do may be luck, so it decides nothing."""
    missed = any(run.updates_to_reach is None for name in part["not_always"] for run in evidence.found[name])
    return ("holds" if missed and not evidence.changed else "open"), counted(part["not_always"], evidence)


def counted(models: Sequence[str], evidence: Evidence) -> str:
    """How many runs got there."""
    words = []
    for name in models:
        runs = evidence.found[name]
        words.append(f"{sum(run.updates_to_reach is not None for run in runs)} of {len(runs)} runs of {name}")
    return f"A validation {level_of(evidence)} was reached by {', '.join(words)}."


def never_fails(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether no run of the first has failed, and some of the others have."""
    first, others = part["never_fails"], part["others"]
    failed = {name: sum(run.failed for run in evidence.found[name]) for name in (first, *others)}
    because = ", ".join(f"{count} of {len(evidence.found[name])} runs of {name}" for name, count in failed.items())
    if failed[first]:
        return "does not hold", f"Failed: {because}."
    return ("holds" if all(failed[name] for name in others) else "open"), f"Failed: {because}."


def rising(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether numbers that were found rise from the first to the last."""
    found = {path: number_at(evidence.data, path) for path in part["rising"]}
    words = ", ".join(f"{readable(path)} {value:.4g}" for path, value in found.items())
    values = list(found.values())
    return ("holds" if all(low < high for low, high in pairwise(values)) else "does not hold"), f"Found: {words}."


def near(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether numbers that were found are those claimed, give or take `within`."""
    found = {path: (number_at(evidence.data, path), wanted) for path, wanted in part["near"].items()}
    words = ", ".join(f"{readable(path)} {value:.4g} ({wanted:g} claimed)" for path, (value, wanted) in found.items())
    agree = all(abs(value - wanted) <= part["within"] for value, wanted in found.values())
    return ("holds" if agree else "does not hold"), f"Found, give or take {part['within']:g}: {words}."


def above(part: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, str]:
    """Whether numbers that were found are all above those given."""
    found = {path: (min(numbers_at(evidence.data, path)), bound) for path, bound in part["above"].items()}
    words = ", ".join(f"{readable(path)} {value:.4g} (above {bound:g})" for path, (value, bound) in found.items())
    return ("holds" if all(value > bound for value, bound in found.values()) else "does not hold"), f"Found: {words}."


def readable(path: str) -> str:
    """The place of a number in words."""
    return path.replace(".*", "").replace(".-1", " at the end").replace(".", " ").replace("_", " ")


def number_at(data: Mapping[str, Any], path: str) -> float:
    """A number inside plain data, or the mean of several."""
    return statistics.fmean(numbers_at(data, path))


def numbers_at(data: Any, path: str) -> list[float]:
    """Numbers inside plain data: names and places in lists, with dots between them; a star for all that there are."""
    found = [data]
    try:
        for name in path.split("."):
            if name == "*":
                found = [one for value in found for one in (value if isinstance(value, list) else value.values())]
            else:
                found = [value[int(name)] if isinstance(value, list) else value[name] for value in found]
        return [float(value) for value in found] or [float("")]
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError(f"expected a number at {path} of the result, got none; run it again") from None


def level(evidence: Evidence) -> Claim:
    """Whether scores are those published, as far as the spread lets one say."""
    words = "Numbers of the published level."
    experiment = evidence.experiment
    published = experiment.published[experiment.report.score]
    measured = [name for name in published if evidence.scores(name)]
    if experiment.preset == "smoke":
        return Claim(words, "not tested here", "The smoke preset only shows that everything works.")
    if not measured:
        return Claim(words, "not tested here", "No run of a model with a published number has ended.")
    compared = {
        name: difference(
            Sample.of(evidence.scores(name)),
            Sample(published[name].mean, published[name].std, evidence.published_runs),
            1 - ERROR / len(measured),
        )
        for name in measured
    }
    values = ", ".join(f"{name} {evidence.shown(one.value, '+')}" for name, one in compared.items())
    clear = [name for name, one in compared.items() if one.is_clear]
    if clear:
        verdict: Verdict = "open" if evidence.changed else "does not hold"
        because = f"Here minus published: {values}; beyond the spread of the runs for {', '.join(clear)}."
    else:
        few = any(len(evidence.scores(name)) < FEWEST for name in measured)
        verdict = "open" if few or evidence.changed else "holds"
        because = f"Here minus published: {values}; nowhere beyond the spread of the runs."
        if few:
            because += " There are too few of them to say more."
    return Claim(words, verdict, because)


def how_decided(claims: Sequence[Claim], changed: str) -> str:
    """What a reader has to know about verdicts that nobody has looked at."""
    if all(claim.verdict == "not tested here" for claim in claims):
        return ""
    words = "Decided by tests on these numbers."
    return f"{words} The runs are not as published: {changed}." if changed else words


def reached(updates: Sequence[int | None]) -> str:
    """Updates of every run."""
    never = sum(update is None for update in updates)
    there = [f"{update:,}" for update in updates if update is not None]
    return ", ".join([*there, *([f"never in {never} run{'s' if never > 1 else ''}"] if never else [])])


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
    "near": near,
    "above": above,
}
"""By the field of claims.yaml that asks for it."""
OF_DATA = ("rising", "near", "above")
"""Tests that look at what was found, not at models."""
