"""What was run, where, when and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..configuration import in_words
from ..registry import PAPERS
from ..schema import Experiment
from ..verdicts import Judgement
from .run_folders import RunFolder, busy

LONGEST = 20_000
"""Letters of a configuration that are shown."""


def facts(
    experiment: Experiment,
    groups: Mapping[str, Sequence[RunFolder]],
    changed: str,
    judgement: Judgement | None,
) -> list[tuple[str, str]]:
    """What was run, where, when and for how long."""
    runs = [run for group in groups.values() for run in group]
    described = {"models": {name: group[0].description for name, group in groups.items()}}
    words = in_words(experiment, described)
    words["seeds"] = ", ".join(map(str, sorted({run.seed for run in runs})))
    days = sorted({str(run.machine["started"])[:10] for run in runs if "started" in run.machine})
    interrupted = sum(run.was_interrupted for run in runs)
    found = [
        ("not as published", changed),
        *words.items(),
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
        ("stopped and continued", f"{interrupted} of {len(runs)} runs" if interrupted else ""),
        ("conditions", "" if judgement is None else judgement.conditions),
        ("choices and deviations", " ".join(experiment.choices)),
    ]
    return [(name, value) for name, value in found if value]


def source(experiment: Experiment) -> str:
    """Which figure or table of which paper."""
    if experiment.paper == "own" or experiment.paper not in PAPERS:
        return ""
    return f"Reproduces {experiment.reproduces} of {PAPERS[experiment.paper]}."


def shared(runs: Iterable[RunFolder], form: str) -> str:
    """What machines say, every answer once."""
    found = []
    for run in runs:
        try:
            found.append(form.format(**run.machine).replace(", CUDA None", ""))
        except (KeyError, IndexError):
            continue
    return " or ".join(sorted(set(found)))


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def configurations(groups: Mapping[str, Sequence[RunFolder]]) -> list[tuple[str, str]]:
    """The configuration of every model, several where its runs differ."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, group in groups.items():
        for run in group:
            found.setdefault((name, run.text[:LONGEST]), []).append(str(run.seed))
    return [
        (f"{name}, seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}", text)
        for (name, text), seeds in found.items()
    ]
