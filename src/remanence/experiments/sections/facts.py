"""Facts about the runs of an experiment: settings, hardware, versions, dates and run times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..configuration import in_words
from ..judgements import Judgement
from ..registry import paper_of
from ..schema import Experiment
from .run_folders import RunFolder, busy

LONGEST = 20_000
"""Maximum number of characters of a configuration that are shown."""


def facts(
    experiment: Experiment,
    groups: Mapping[str, Sequence[RunFolder]],
    changed: str,
    judgement: Judgement | None,
) -> list[tuple[str, str]]:
    """Names and values: settings, hardware, versions, dates and run times."""
    runs = [run for group in groups.values() for run in group]
    described = {"models": {name: group[0].description for name, group in groups.items()}}
    words = in_words(experiment, described)
    words["seeds"] = ", ".join(map(str, sorted({run.seed for run in runs})))
    days = sorted({str(run.machine["started"])[:10] for run in runs if "started" in run.machine})
    interrupted = sum(run.was_interrupted for run in runs)
    found = [
        ("differs from the preset paper", changed),
        *words.items(),
        ("data", "; ".join(dict.fromkeys(run.data for run in runs if run.data))),
        ("device", shared(runs, "{name} ({device})")),
        ("machine", shared(runs, "{system}, cores: {cores}, threads used: {threads}")),
        ("versions", shared(runs, "remanence {remanence}, torch {torch}, Python {python}, CUDA {cuda}")),
        ("started", " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""),
        (
            "time",
            "; ".join(
                [
                    f"{duration(busy(runs))} in all",
                    *(f"{name} {duration(busy(group))}" for name, group in groups.items()),
                ]
            ),
        ),
        ("stopped and resumed", f"{interrupted} of {len(runs)} runs" if interrupted else ""),
        ("conditions", "" if judgement is None else judgement.conditions),
        ("choices and deviations", " ".join(experiment.choices)),
    ]
    return [(name, value) for name, value in found if value]


def source(experiment: Experiment) -> str:
    """The figure or table of the paper that is reproduced."""
    paper = paper_of(experiment)
    return f"Reproduces {experiment.reproduces} of {paper}." if paper else ""


def shared(runs: Iterable[RunFolder], form: str) -> str:
    """A format string filled in for every machine, without duplicates."""
    found = []
    for run in runs:
        try:
            found.append(form.format(**run.machine).replace(", CUDA None", ""))
        except (KeyError, IndexError):
            continue
    return " or ".join(sorted(set(found)))


def duration(seconds: float) -> str:
    """Format a duration."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def configurations(groups: Mapping[str, Sequence[RunFolder]]) -> list[tuple[str, str]]:
    """The configuration of every model; several if its runs differ."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, group in groups.items():
        for run in group:
            found.setdefault((name, run.text[:LONGEST]), []).append(str(run.seed))
    return [
        (f"{name}, seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}", text)
        for (name, text), seeds in found.items()
    ]
