"""When the units of a trained pLSTM reset (pLSTM figure A.1 C): from its weights, or from a file that outlives them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import analysis, files
from ..gates import PowerLaw
from ..models import SequenceModel
from ..report.files import read
from ..training.directory import read_result
from .loading import load_model
from .results import FAILED, folder_of, with_result
from .schema import Experiment

SHOWN = ("plstm/copy-variable-200-500", "plstm/copy-variable-200-1000")
"""Experiments whose figure has reference times."""
FILE = "reset_maps.json"


def reset_maps(experiment: Experiment, out: Path) -> Mapping[str, Any] | None:
    """What `analysis.reset_maps` finds about the first pLSTM that has not failed: its model, its seed and its update.

    Args:
        experiment: A copy experiment.
        out: Folder with the results of all experiments. If it has no weights, what `keep` has written there is read.

    Returns:
        The maps, or None if there are neither weights nor a file.
    """
    for name, model in experiment.models.items():
        for seed, folder in with_result(out, experiment, name).items():
            result = read_result(folder) or {}
            if result.get("status") in FAILED or not has_weights(folder):
                continue
            trained = load_model(folder)
            if not isinstance(trained, SequenceModel) or not isinstance(getattr(trained.layer, "gate", None), PowerLaw):
                break
            found = analysis.reset_maps(trained, model.task).plain()
            return {"model": name, "seed": seed, "update": (result.get("best") or {}).get("update"), **found}
    return read(folder_of(out, experiment) / FILE)


def has_weights(folder: Path) -> bool:
    """Whether the folder of a run has a checkpoint."""
    return any((folder / "checkpoints").glob("*.safetensors"))


def is_later(found: Mapping[str, Any], experiment: Experiment, into: Path) -> bool:
    """Whether there are already maps of an earlier seed, whose run is still there."""
    kept = read(folder_of(into, experiment) / FILE)
    if kept is None or kept["seed"] >= found["seed"]:
        return False
    folder = with_result(into, experiment, kept["model"]).get(kept["seed"])
    result = None if folder is None else read_result(folder)
    return result is not None and (result.get("best") or {}).get("update") == kept["update"]


def keep(experiment: Experiment, work: Path, into: Path) -> None:
    """Write the maps of a run in `work` to `into`, where weights are not kept; to whole steps, which a figure shows."""
    found = reset_maps(experiment, work) if experiment.id in SHOWN else None
    if found is None or is_later(found, experiment, into):
        return
    maps = [{**one, "k": [[round(k) for k in step] for step in one["k"]]} for one in found["maps"]]
    content = json.dumps({**found, "maps": maps}, separators=(",", ":"))
    files.write(folder_of(into, experiment) / FILE, f"{content}\n".encode())
