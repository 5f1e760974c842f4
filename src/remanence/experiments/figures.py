"""The figures of an experiment, made from its result files, from the weights of a run or from the data of its task."""

from __future__ import annotations

from pathlib import Path

from .. import analysis
from ..names import lookup
from ..report.figure import Axis, Figure, Panel, Series
from ..report.figures import KNOWN
from ..report.figures.copy_task import over_a_sequence
from ..report.files import NotYetRun, ResultFiles
from ..tasks import Dyck2
from . import reset_times
from .registry import IDS, find
from .results import run_folder
from .schema import PRESETS, Experiment

__all__ = ["NotYetRun", "figures_of", "latest", "statement_of", "with_results"]


def figures_of(experiment: Experiment, out: Path) -> list[Figure]:
    """All figures of an experiment and preset.

    Args:
        experiment: The experiment, with its preset.
        out: Folder with the results of all experiments.

    Raises:
        NotYetRun: There are no results yet.
    """
    make = lookup("an experiment with figures", experiment.id, KNOWN)
    statement = statement_of(experiment)
    files = files_of(experiment, out)
    try:
        figures = make(files, statement)
    except KeyError as error:  # written by another version, or incomplete
        raise ValueError(
            f"expected {error} in the results under {files.folder}, got files without it; remove them and run it again"
        ) from None
    further = FURTHER.get(experiment.id)
    return figures if further is None else [*figures, *further(experiment, out, statement)]


def files_of(experiment: Experiment, out: Path) -> ResultFiles:
    """The result files of an experiment, with the fields that figures need."""
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
    """The claims of the paper, in words; none for an experiment of our own."""
    return "" if experiment.is_own else " ".join(experiment.claims)


def with_results(out: Path) -> list[str]:
    """Ids of the experiments with results in a folder, in the order of the papers."""
    return [id for id in IDS if any((out / id / preset).is_dir() for preset in PRESETS)]


def latest(id: str, out: Path) -> Experiment:
    """An experiment with the longest preset that has results.

    Raises:
        NotYetRun: There are no results with any preset.
    """
    experiment = find(id)  # raises for an unknown id
    for preset in reversed(PRESETS):
        if (out / id / preset).is_dir():
            return find(id, preset)
    raise files_of(experiment, out).nothing()


def reset_maps(experiment: Experiment, out: Path, statement: str) -> list[Figure]:
    """Reference times of one trained pLSTM over two sequences (pLSTM figure A.1 C), if they are known."""
    found = reset_times.reset_maps(experiment, out)
    if found is None:
        return []
    panels = [
        over_a_sequence(
            f"{found['model']}, seed {found['seed']}: delay {one['delay']}", one["k"], found["order"], one["signal"]
        )
        for one in found["maps"]
    ]
    title = f"{experiment.title} ({experiment.id}/{experiment.preset})"
    made_from = run_folder(out, experiment, found["model"], found["seed"]).relative_to(out).as_posix()
    note = f"Weights after {found['update']:,} updates. Units in the same order in all panels."
    return [Figure(f"{experiment.id}#resets", title, panels, statement, (made_from,), 2, note)]


def pair_timescales(experiment: Experiment, _: Path, statement: str) -> list[Figure]:
    """Frequency of dependencies by length in the training strings (multi-timescale paper, figure 2 right)."""
    task = next(model.task for model in experiment.models.values())
    assert isinstance(task, Dyck2)
    found = analysis.pair_timescale_distribution(task)
    share = [value if value > 0 else float("nan") for value in found.share.tolist()]
    panel = Panel(
        title="training strings",
        x=Axis("symbols from opening to closing bracket", log=True),
        y=Axis("share of all pairs", log=True),
        series=[Series("pairs of brackets", found.timescales.tolist(), share, mark="points")],
    )
    title = f"{experiment.title} ({experiment.id}/{experiment.preset})"
    return [Figure(f"{experiment.id}#pairs", title, [panel], statement, (), 2)]


FURTHER = {
    **dict.fromkeys(reset_times.SHOWN, reset_maps),
    "mts/dyck2": pair_timescales,
}
"""Makers of figures that need the weights of a run or the data of a task, not only the results of runs."""
