"""`fit`: train a model on your own data in one call, as a run like any other."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from ..models import SequenceModel
from ..models.sequence import Layer
from ..tasks import DataTask, GivenData, SequenceData, Task
from ..tasks.base import Split
from ..training import Budget, Run, Training, checkpoint, train
from ..training.directory import Directory
from ..training.files import read_lines
from ..training.forward import forked_rng
from ..training.progress import Silent
from .build import build
from .from_code import layer_described
from .loading import put_in, weights_of
from .merge import merge, part_of_training, put
from .models import describe_training, read_description
from .own_tasks import describe_interface, describe_task
from .registry import IDS

PRESET = "fit"
"""Takes the place of the preset in the path of such a run."""
DEFAULT_VALIDATION = 0.2
LARGEST_BATCH = Training().batch
Made = SequenceModel | Layer


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model with its training history, result and run folder."""

    model: SequenceModel
    """In evaluation mode, with the weights that were best in validation (the last ones if the run reports those)."""
    history: list[dict[str, Any]]
    """One entry per evaluation: update, epoch, learning rate, losses, validation scores."""
    result: Mapping[str, Any]
    """Final status, number of updates, and best, last and test scores."""
    folder: Path
    """Run folder with configuration, metrics and checkpoints; `remanence inspect` reads it."""

    @property
    def scores(self) -> dict[str, float]:
        """Test scores, or the best validation scores if there is no test set."""
        found = self.result.get("test") or self.result.get("best") or self.result.get("last") or {}
        return {name: value for name, value in found.items() if name != "update"}


def fit(
    model: Made | Callable[[], Made],
    data: SequenceData | Task,
    name: str,
    *,
    validation: SequenceData | float | None = DEFAULT_VALIDATION,
    test: SequenceData | float | None = None,
    split_seed: int = 0,
    seed: int = 1,
    out: Path | str = "runs",
    device: torch.device | str = "cpu",
    budget: Budget | str | None = None,
    progress: Silent | None = None,
    engine: str | None = None,
    **training: Any,
) -> Fitted:
    """Train a model on your own sequences.

    Stopping it loses nothing: the same call resumes, or returns the result if the run has finished.

    Args:
        model: A function that returns a `SequenceModel` or a layer, called with torch's generator seeded with `seed`;
            or such a module, of which a copy is trained from its current weights. A layer gets a linear read-out.
        data: Sequences, or a task.
        name: Name of the run, "EXPERIMENT/MODEL". `remanence report` compares the models of one experiment.
        validation: Validation sequences, or the fraction of `data` to use for validation; None for no validation.
        test: Test sequences for the final score, or a fraction of `data`; None for no test.
        split_seed: Seed of the split into fractions; the same for every `seed`, so that scores are comparable.
        seed: Seed of the initial weights, the order of the data and dropout.
        out: Folder for all results. The run is saved in OUT/EXPERIMENT/fit/MODEL/seed-N.
        device: Device to train on.
        budget: Time limit, such as "9m".
        progress: Progress display, such as `training.Quiet()`.
        engine: See `training.train`.
        training: Fields of `training.Training`, and of its optimiser, schedule and stop: `epochs=30, lr=1e-3,
            clip_norm=1.0, patience=5`. The default batch size is at most the number of sequences.

    Raises:
        training.Stopped: A signal or the time limit stopped the training. Everything is saved.
        ValueError: An argument is wrong, or the folder holds a run with different arguments.
    """
    experiment, _, model_name = _expect_name(name).rpartition("/")
    task = _task(data, validation, test, split_seed)
    config = _config(training, task)
    with forked_rng(torch.device("cpu")):
        torch.default_generator.manual_seed(seed)
        first = _made(model, task)
        layer = layer_described(first, task, model_name)
    folder = Path(out) / experiment / PRESET / model_name / f"seed-{seed}"
    description = {
        "experiment": experiment,
        "preset": PRESET,
        "model": model_name,
        "seed": seed,
        "task": describe_task(task),
        "layer": layer,
        "training": describe_training(config),
        **describe_interface(task),
    }
    if isinstance(model, nn.Module):
        description["start"] = _digest(first)
        _expect_start(folder, description["start"])
    run = Run(folder, experiment, model_name, seed, task, partial(_made, model, task), config, description)
    limit = Budget.parse(budget) if isinstance(budget, str) else budget
    with progress or Silent() as shown:
        (result,) = train([run], device=device, budget=limit, progress=shown, engine=engine)
    if result["status"] == "diverged" and not any((folder / "checkpoints").glob("*.safetensors")):
        raise ValueError(
            f"expected a finite loss up to the first checkpoint, got a non-finite one at update {result['updates']} "
            f"of {run}; try a smaller lr, or clip_norm"
        )
    path = weights_of(folder, config.report)
    put_in(first, checkpoint.load(path)[0], path)
    return Fitted(first.to(device).eval(), read_lines(folder, "metrics.jsonl"), result, folder)


def _expect_name(name: str) -> str:
    """Check a name EXPERIMENT/MODEL: valid folder names, and not an experiment of the package."""
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) < 2 or not all(re.fullmatch(r"[\w][\w.-]*", part) for part in parts):
        raise ValueError(f"expected a name such as 'vowels/plstm', of letters, digits, '_', '-' and '.', got {name!r}")
    if "/".join(parts[:-1]) in IDS:
        raise ValueError(f"expected a name of your own, got {name!r}, which is an experiment of this package")
    return name


def _task(
    data: SequenceData | Task,
    validation: SequenceData | float | None,
    test: SequenceData | float | None,
    split_seed: int,
) -> Task:
    """The task, with the data split into training, validation and test sequences."""
    if isinstance(data, Task):
        if validation != DEFAULT_VALIDATION or test is not None:
            raise ValueError(
                "expected no validation and test arguments with a task, which has its own splits, got some"
            )
        return data
    if not isinstance(data, SequenceData):
        raise TypeError(f"expected data to be SequenceData or a task, got {type(data).__name__}")
    splits: dict[Split, SequenceData] = {}
    wanted: dict[Split, SequenceData | float | None] = {"test": test, "validation": validation}
    whole = len(data)
    for split, given in wanted.items():
        if isinstance(given, SequenceData):
            splits[split] = given
        elif given is not None:
            # A fraction always refers to all sequences, also after the test sequences were taken out.
            share = given * whole / len(data) if isinstance(given, float) else given
            data, splits[split] = data.split(share, split_seed)
    return GivenData({"train": data, **dict(reversed(splits.items()))})


def _config(given: Mapping[str, Any], task: Task) -> Training:
    """The training configuration from keyword arguments."""
    values: dict[str, Any] = {}
    if isinstance(task, DataTask) and "batch" not in given:
        values["batch"] = min(LARGEST_BATCH, len(task.data))
    for name, value in given.items():
        values = merge(values, put({}, [*part_of_training(name), name], value))
    return build(Training, values, "training")


def _made(model: Made | Callable[[], Made], task: Task) -> SequenceModel:
    """A model for a task: a new one, or a copy of the given one."""
    made = cast(Made, copy.deepcopy(model) if isinstance(model, nn.Module) else model())
    if not isinstance(made, SequenceModel):
        symbols = task.input_size if isinstance(task, DataTask) and task.data.symbols else None
        made = SequenceModel(made, task.output_size, readout=task.readout, symbols=symbols)
    inputs = made.input_size if made.embedding is None else made.embedding.num_embeddings
    for what, expected, got in (
        ("readout", task.readout, made.readout),
        ("inputs", task.input_size, inputs),
        ("outputs", task.output_size, made.head.out_features),
    ):
        if expected != got:
            raise ValueError(f"expected a model with {what} {expected!r} to match the data, got {got!r}")
    if made.missing is None and isinstance(task, DataTask) and task.data.batch.mask is not None:
        raise ValueError(
            "expected a SequenceModel with missing='zero' or missing='forward' for data with missing values, got "
            "missing=None"
        )
    return made


def _digest(model: nn.Module) -> str:
    """SHA-256 digest of the weights of a model."""
    found = hashlib.sha256()
    for name, weight in model.state_dict().items():
        found.update(name.encode())
        found.update(weight.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _expect_start(folder: Path, start: str) -> None:
    """Refuse a folder whose run started from other weights."""
    if Directory(folder).begun and read_description(folder).get("start") not in (None, start):
        raise ValueError(
            f"expected the initial weights of the run in {folder}, got different ones; pass a function that creates "
            "the model, so that they follow from seed, or choose another name"
        )
