"""The table of an experiment beside the published numbers, with the difference and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...report.difference import Sample, difference
from ...table import Table
from .. import results
from ..verdicts import Evidence
from .run_folders import RunFolder

INTERVAL = "95 % interval"


def table(evidence: Evidence, groups: Mapping[str, Sequence[RunFolder]]) -> Table:
    """The table of `remanence run`, with parameters, the difference to what was published and how sure that is."""
    experiment = evidence.experiment
    known = results.table(experiment, evidence.found)
    numbers = experiment.published.get(experiment.report.score, {})
    at = list(known.headings).index("published") + 1
    counts = [parameters_of(groups[row[0]]) for row in known.rows]
    if not numbers:  # nothing to stand beside
        rows = [(row[0], count, *row[1 : at - 1], *row[at:]) for row, count in zip(known.rows, counts, strict=True)]
        return titled(known, ("model", "parameters", *known.headings[1 : at - 1], *known.headings[at:]), rows, [])
    rows = []
    for row, count in zip(known.rows, counts, strict=True):
        number = numbers.get(experiment.published_of(row[0]))
        scores = evidence.scores(row[0])
        apart, interval = "-", "-"
        if number is not None and scores:
            one = difference(Sample.of(scores), Sample(number.mean, number.std, evidence.published_runs))
            apart = evidence.shown(one.value, "+")
            if one.low is not None and one.high is not None:
                interval = f"{evidence.shown(one.low, '+')} to {evidence.shown(one.high, '+')}"
        rows.append((row[0], count, *row[1:at], apart, interval, *row[at:]))
    width = len(known.headings)
    found = {experiment.published_of(name) for name in evidence.found}
    for name, number in numbers.items():
        if name not in found:  # published and not run here
            cells = ["-"] * width
            cells[0], cells[at - 1] = name, results.published(number, experiment.report.digits)
            cells[1] = cells[2] = ""
            rows.append((cells[0], "-", *cells[1:at], "-", "-", *cells[at:]))
    headings = ("model", "parameters", *known.headings[1:at], "difference", INTERVAL, *known.headings[at:])
    notes = []
    if found & numbers.keys():
        exact = "A published number without a standard deviation is taken as exact"
        if any(number.std is not None for number in numbers.values()):
            exact = (
                f"A published standard deviation is taken as one over {evidence.published_runs} runs; "
                "a published number without one as exact"
            )
        notes.append(
            f"Difference: here minus published. {INTERVAL}: of that difference, from the spread over seeds "
            f"(Welch's t). {exact}."
        )
    return titled(known, headings, rows, notes)


def titled(known: Table, headings: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> Table:
    """A table like another, without the experiment in its title, which stands above it."""
    title = known.title.partition(": ")[2] or known.title
    title = title[:1].upper() + title[1:]
    return Table(title, headings, rows, words=known.words, text=known.text, notes=[*known.notes, *notes])


def parameters_of(runs: Iterable[RunFolder]) -> str:
    """The number of parameters of a model, as its first result says."""
    ended = (run.files.result for run in runs if run.files.result is not None)
    count = next(ended, {}).get("parameters")
    return "-" if count is None else f"{count:,}"
