"""From the description of a model to the model, and back from the folder of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..models import SequenceModel
from ..nn import make
from ..training.config import Training
from .build import build, convert, plain
from .resolve import OF_MODEL, layer_arguments, make_task, placed
from .schema import Experiment, Model


def build_model(model: Model, device: torch.device | str | None = None) -> SequenceModel:
    """The model with new weights."""
    try:
        layer = make(model.make, model.task.input_size, model.hidden_size, device=device, **model.layer)
    except (TypeError, ValueError) as error:
        raise placed(error, f"models.{model.name}", [*OF_MODEL, *layer_arguments(model.make)]) from None
    return SequenceModel(layer, model.task.output_size, readout=model.task.readout, dropout=model.output_dropout)


def count_parameters(model: Model) -> int:
    """How many numbers it learns. Nothing is allocated."""
    return sum(weight.numel() for weight in build_model(model, "meta").parameters() if weight.requires_grad)


def describe(experiment: Experiment, model: Model, seed: int) -> dict[str, Any]:
    """Everything one run depends on, as plain data."""
    return {
        "experiment": experiment.id,
        "preset": experiment.preset,
        "model": model.name,
        "seed": seed,
        "task": {"name": model.task.name, **plain(model.task)},
        "layer": describe_layer(model),
        "training": plain(model.training),
    }


def describe_layer(model: Model) -> dict[str, Any]:
    """The part that rebuilds the model."""
    fixed = {"make": model.make, "hidden_size": model.hidden_size, "output_dropout": model.output_dropout}
    return {**fixed, **plain(model.layer)}


def from_description(description: Mapping[str, Any]) -> Model:
    """The model that was described."""
    layer = dict(description["layer"])
    return Model(
        name=str(description["model"]),
        make=layer.pop("make"),
        hidden_size=layer.pop("hidden_size"),
        output_dropout=convert(float, layer.pop("output_dropout"), "layer.output_dropout"),
        layer=layer,
        task=make_task(description["task"], "task"),
        training=build(Training, description["training"], "training"),
    )


def read_description(directory: Path) -> dict[str, Any]:
    """The configuration of a run."""
    from . import text

    path = directory / "config.yaml"
    try:
        description = text.read(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"expected the folder of a run with config.yaml, got {directory}: {error.strerror}") from None
    if not isinstance(description, dict) or not {"model", "task", "layer", "training"} <= description.keys():
        raise ValueError(f"expected the configuration of a run with model, task, layer and training, got {path}")
    return description
