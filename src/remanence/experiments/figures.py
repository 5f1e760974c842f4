"""The figures of an experiment, from the files it has left behind."""

from __future__ import annotations

from pathlib import Path

from ..names import lookup
from ..report.figure import Figure
from ..report.figures import KNOWN
from ..report.files import NotYetRun, ResultFiles
from . import further_figures
from .registry import IDS, find
from .schema import PRESETS, Experiment

__all__ = ["NotYetRun", "figures_of", "latest", "statement_of", "with_results"]


def figures_of(experiment: Experiment, out: Path) -> list[Figure]:
    """Everything there is to draw of an experiment and preset.

    Args:
        experiment: with its preset.
        out: the folder that holds the results of all experiments.

    Raises:
        NotYetRun: there are no results of it.
    """
    make = lookup("an experiment with figures", experiment.id, KNOWN)
    statement = statement_of(experiment)
    files = files_of(experiment, out)
    try:
        figures = make(files, statement)
    except KeyError as error:  # what another version wrote, or half a file
        raise ValueError(
            f"expected {error} in the results under {files.folder}, got files without it; remove them and run it again"
        ) from None
    further = further_figures.KNOWN.get(experiment.id)
    return figures if further is None else [*figures, *further(experiment, out, statement)]


def files_of(experiment: Experiment, out: Path) -> ResultFiles:
    """Its files, with what figures have to know about it."""
    report = experiment.report
    return ResultFiles(
        root=out,
        id=experiment.id,
        preset=experiment.preset,
        title=experiment.title,
        models=list(experiment.models),
        score=report.score,
        unit=report.unit,
        reach=report.reach,
    )


def statement_of(experiment: Experiment) -> str:
    """What was published, in words."""
    return " ".join(experiment.claims)


def with_results(out: Path) -> list[str]:
    """Ids of experiments that have left something in a folder of results, in the order of the papers."""
    return [id for id in IDS if any((out / id / preset).is_dir() for preset in PRESETS)]


def latest(id: str, out: Path) -> Experiment:
    """An experiment with the preset nearest to the paper that has results.

    Raises:
        NotYetRun: there are no results of it with any preset.
    """
    experiment = find(id)  # an unknown id is answered first
    for preset in reversed(PRESETS):
        if (out / id / preset).is_dir():
            return find(id, preset)
    raise files_of(experiment, out).nothing()
