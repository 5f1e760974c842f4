"""Runs that take a second."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import torch

import remanence as rm
from remanence.models import SequenceModel
from remanence.tasks import make
from remanence.tasks.base import Task
from remanence.training import Optimiser, Run, Training

TASK = make("copy", delay=3, symbols=4, length=2, train_size=64, validation_size=20, test_size=12)
CONFIG = Training(
    batch=8, epochs=3, evaluate_every=4, optimiser=Optimiser("adam", lr=1e-2, clip_norm=1.0)
)  # 24 updates, 6 evaluations
MADE_ANEW = {"machine.json", "times.jsonl"}


def run(
    folder: Path,
    seed: int = 1,
    *,
    task: Task = TASK,
    model: str = "plstm",
    units: int = 6,
    dropout: float = 0.0,
    config: Training = CONFIG,
    **keywords: object,
) -> Run:
    """A small run. Keywords change the configuration."""
    config = replace(config, **keywords)

    def make_model() -> SequenceModel:
        layer = rm.make(model, task.input_size, units)
        return SequenceModel(layer, task.output_size, readout=task.readout, dropout=dropout)

    description = {"experiment": "test/copy", "model": model, "seed": seed, "training": asdict(config)}
    return Run(folder / f"seed-{seed}", "test/copy", model, seed, task, make_model, config, description)


def weights(run: Run, name: str | None = None) -> dict[str, torch.Tensor]:
    """The weights of the newest checkpoint of a run, or of one by name."""
    from safetensors.torch import load_file

    if name is not None:
        return load_file(run.directory / "checkpoints" / name)
    path = max((run.directory / "checkpoints").glob("step-*.safetensors"))
    return {name.removeprefix("model/"): value for name, value in load_file(path).items() if name.startswith("model/")}


def content(folder: Path) -> dict[str, bytes]:
    """Every file that must not depend on how often a run was interrupted."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in MADE_ANEW
    }
