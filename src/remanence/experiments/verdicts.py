"""Which claims of a paper these runs confirm: every part of a claim is tested on the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from ..report.difference import Sample, difference
from ..report.section import Claim, Verdict
from . import text
from .claim_tests import ERROR, FEWEST, KNOWN, OF_ENDED, Evidence, models_of

NOT_ENDED = "Some of these runs are unfinished."
UNTESTED = "No test on numbers decides this; see the tables and figures."


@cache
def parts_of_claims() -> dict[str, list[dict[str, Any]]]:
    """The parts of claims by experiment, with their tests. Cached: do not modify the result."""
    parts: dict[str, list[dict[str, Any]]] = text.read((files(__package__) / "claims.yaml").read_text("utf-8"))
    return parts


def decide(evidence: Evidence) -> list[Claim]:
    """Test every claim of an experiment on these runs."""
    experiment = evidence.experiment
    parts = parts_of_claims().get(experiment.id) or [{"claim": claim} for claim in experiment.claims]
    claims = [decide_part(part, evidence) for part in parts]
    if experiment.published.get(experiment.report.score) and experiment.kind == "training":
        claims.append(level(evidence))
    return claims


def decide_part(part: Mapping[str, Any], evidence: Evidence) -> Claim:
    """Test one part of a claim."""
    words = str(part["claim"])
    kind = next((name for name in KNOWN if name in part), None)
    if kind is None:
        return Claim(words, "not tested here", UNTESTED)
    if evidence.experiment.preset == "smoke":
        return Claim(words, "not tested here", "The smoke preset only checks that everything runs.")
    missing = evidence.missing(models_of(part))
    if missing:
        return Claim(words, "not tested here", f"No run of {', '.join(missing)} has finished.")
    try:
        verdict, because = KNOWN[kind](part, evidence)
        if kind in OF_ENDED and evidence.unfinished(models_of(part)):
            return Claim(words, "open", f"{because} {NOT_ENDED}")
        return Claim(words, verdict, because)
    except ValueError as error:
        return Claim(words, "not tested here", f"{error}.")


def level(evidence: Evidence) -> Claim:
    """Whether the scores agree with the published ones, given the spread of the runs."""
    words = "The scores match the published ones."
    experiment = evidence.experiment
    published = experiment.published[experiment.report.score]
    measured = [name for name in published if evidence.scores(name)]
    if experiment.preset == "smoke":
        return Claim(words, "not tested here", "The smoke preset only checks that everything runs.")
    if not measured:
        return Claim(words, "not tested here", "No run of a model with a published number has finished.")
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
    unfinished = evidence.unfinished(measured)
    unsure = unfinished or evidence.changed
    missing = [name for name in published if name in experiment.usual and name not in measured]
    if clear:
        verdict: Verdict = "open" if unsure else "does not hold"
        because = f"Here minus published: {values}; beyond the spread of the runs for {', '.join(clear)}."
    else:
        few = any(len(evidence.scores(name)) < FEWEST for name in measured)
        verdict = "open" if few or missing or unsure else "holds"
        because = f"Here minus published: {values}; all within the spread of the runs."
        if missing:
            because += f" There is no score of {', '.join(missing)} yet."
        if few:
            because += " There are too few runs to conclude more."
    if unfinished:
        because += f" {NOT_ENDED}"
    return Claim(words, verdict, because)


def how_decided(claims: Sequence[Claim], changed: str) -> str:
    """How verdicts without a person's judgement were decided, in words."""
    if all(claim.verdict == "not tested here" for claim in claims):
        return ""
    words = "Decided by statistical tests on these numbers."
    return f"{words} The runs differ from the published setup: {changed}." if changed else words
