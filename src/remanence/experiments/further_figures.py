"""Figures that result files alone do not hold: from the weights of a run, or from the data of a task."""

from __future__ import annotations

from pathlib import Path

from .. import analysis
from ..gates import PowerLaw
from ..models import SequenceModel
from ..report.figure import Axis, Figure, Panel, Series
from ..report.figures.reset_times import over_a_sequence
from ..tasks import Dyck2
from .loading import load_model
from .results import finished, run_folder
from .schema import Experiment


def reset_maps(experiment: Experiment, out: Path, statement: str) -> list[Figure]:
    """Reference times of one trained pLSTM over two sequences (pLSTM figure A.1 C), where its weights are there."""
    for name, model in experiment.models.items():
        for seed in finished(out, experiment, name):
            folder = run_folder(out, experiment, name, seed)
            if not any((folder / "checkpoints").glob("*.safetensors")):
                continue
            trained = load_model(folder)
            if not isinstance(trained, SequenceModel) or not isinstance(getattr(trained.layer, "gate", None), PowerLaw):
                break
            found = analysis.reset_maps(trained, model.task)
            order = found.order.tolist()
            panels = [
                over_a_sequence(f"{name}, seed {seed}: delay {one.delay}", one.k.tolist(), order, one.signal)
                for one in found.maps
            ]
            made_from = folder.relative_to(out).as_posix()
            title = f"{experiment.title} ({experiment.id}/{experiment.preset})"
            note = "Units in the same order in all panels."
            return [Figure(f"{experiment.id}#resets", title, panels, statement, (f"{made_from}/checkpoints",), 2, note)]
    return []


def pair_timescales(experiment: Experiment, _: Path, statement: str) -> list[Figure]:
    """How frequent dependencies of every length are in the strings of the training (right of figure 2)."""
    task = next(model.task for model in experiment.models.values())
    assert isinstance(task, Dyck2)
    found = analysis.pair_timescale_distribution(task)
    share = [value if value > 0 else float("nan") for value in found.share.tolist()]
    panel = Panel(
        title="strings of the training",
        x=Axis("symbols from opening to closing bracket", log=True),
        y=Axis("share of all pairs", log=True),
        series=[Series("pairs of brackets", found.timescales.tolist(), share, mark="points")],
    )
    title = f"{experiment.title} ({experiment.id}/{experiment.preset})"
    return [Figure(f"{experiment.id}#pairs", title, [panel], statement, (), 2)]


KNOWN = {
    "plstm/copy-variable-200-500": reset_maps,
    "plstm/copy-variable-200-1000": reset_maps,
    "mts/dyck2": pair_timescales,
}
