"""Build a model from its configuration, write the configuration of a run, and read it back from the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from ..models import LanguageModel, SequenceModel, language_model
from ..models.sequence import Layer
from ..nn import biases, make
from ..nn.recurrent import Recurrent
from ..pretrained import restored
from ..tasks import KNOWN as TASKS
from ..tasks import Described, Task, Text
from ..training import files
from ..training.config import Training, plain
from .build import build, convert
from .own_tasks import describe_interface, describe_task, is_own
from .resolve import LANGUAGE, OF_MODEL, TORCH, is_language, layer_arguments, make_task, make_timescales, placed
from .schema import Experiment, Model


def build_model(model: Model, device: torch.device | str | None = None) -> SequenceModel | LanguageModel:
    """Build the model with newly initialised weights."""
    if model.make == FROM_CODE:
        raise ValueError(
            f"expected a model that its configuration describes fully, got {model.name!r}, which has custom code "
            "such as a user-defined gate; in Python, fit returns it"
        )
    arguments = dict(model.layer)
    if isinstance(arguments.get("gate"), Mapping):
        arguments["gate"] = restored(dict(arguments["gate"]))
    if "timescales" in arguments:
        arguments["timescales"] = make_timescales(arguments["timescales"], f"models.{model.name}.timescales")
    inputs = inputs_of(model)
    width = inputs if model.embedding is None else model.embedding
    width = width * (1 + model.mask_input) + model.dt_input
    try:
        if is_language(model.make):
            name = model.make.removeprefix(LANGUAGE)
            return language_model(name, width, hidden_size=model.hidden_size, device=device, **arguments)
        layer: Layer
        if model.make in TORCH:
            layer = TORCH[model.make](width, model.hidden_size, device=device, **arguments)
        else:
            layer = make(model.make, width, model.hidden_size, device=device, **arguments)
    except (TypeError, ValueError) as error:
        raise placed(error, f"models.{model.name}", [*OF_MODEL, *layer_arguments(model.make)]) from None
    return SequenceModel(
        layer,
        model.task.output_size,
        readout=model.task.readout,
        dropout=model.output_dropout,
        symbols=None if model.embedding is None else inputs,
        missing=model.missing,
        mask_input=model.mask_input,
        dt_input=model.dt_input,
    )


def inputs_of(model: Model) -> int:
    """Number of inputs of the task, or number of symbols."""
    task = model.task
    if is_language(model.make) and (not isinstance(task, Text) or task.one_hot):
        given = "one-hot vectors" if isinstance(task, Text) else f"task {task.name!r}"
        raise ValueError(f"expected a text task with tokens for {model.make!r} (models.{model.name}), got {given}")
    if not is_language(model.make) and isinstance(task, Text) and not task.one_hot and model.embedding is None:
        raise ValueError(f"expected models.{model.name}.embedding, or task.one_hot to be true, got neither")
    try:
        return task.input_size
    except ValueError as error:  # for a corpus that is missing
        raise placed(error, "task", [field.name for field in fields(task)]) from None  # type: ignore[arg-type]


def count_parameters(model: Model) -> int:
    """Number of trainable parameters, without biases that timescales freeze. Allocates nothing (meta device)."""
    built = build_model(model, "meta")
    learned = sum(weight.numel() for weight in built.parameters() if weight.requires_grad)
    layers = built.layers if isinstance(built, LanguageModel) else [built.layer]
    return learned - sum(count_frozen(layer) for layer in layers if isinstance(layer, Recurrent))


def count_frozen(layer: Recurrent) -> int:
    """Number of frozen entries in the bias vectors of a layer."""
    entries = (len(biases.acting(layer, place)) * len(biases.frozen_blocks(layer, place)) for place in layer.places)
    return layer.hidden_size * sum(entries)


FROM_CODE = "code"
"""Takes the place of `make` for a model that no configuration can describe."""
UNSAID = object()
LATER: dict[str, Any] = {"restart": 0.0, "shuffle": True, "lr_factors": {}}
"""Fields of the training and its optimiser that were added later, with the value that older runs imply. They are not
written at that value, so that the configurations of older runs stay the same."""


def describe(experiment: Experiment, model: Model, seed: int) -> dict[str, Any]:
    """The configuration of one run as plain data: everything its result depends on."""
    return {
        "experiment": experiment.id,
        "preset": experiment.preset,
        "model": model.name,
        "seed": seed,
        "task": describe_task(model.task),
        "layer": describe_layer(model),
        "training": describe_training(model.training),
        **describe_interface(model.task),
    }


def describe_training(training: Training) -> dict[str, Any]:
    """The fields of the training and its optimiser; fields in `LATER` only if they differ from the value there."""
    return said(plain(training)) | {"optimiser": said(plain(training.optimiser))}


def said(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the fields whose value is the one that runs without them imply."""
    return {name: value for name, value in values.items() if LATER.get(name, UNSAID) != value}


def describe_layer(model: Model) -> dict[str, Any]:
    """The part of a configuration that the model is rebuilt from."""
    fixed: dict[str, Any] = {"make": model.make, "hidden_size": model.hidden_size}
    if not is_language(model.make):
        fixed["output_dropout"] = model.output_dropout
    if model.embedding is not None:
        fixed["embedding"] = model.embedding
    for name in ("missing", "mask_input", "dt_input"):
        if getattr(model, name):
            fixed[name] = getattr(model, name)
    return {**fixed, **plain(model.layer)}


def from_description(description: Mapping[str, Any]) -> Model:
    """The model in the configuration of a run."""
    layer = dict(description["layer"])
    return Model(
        name=str(description["model"]),
        make=layer["make"],
        hidden_size=layer.pop("hidden_size"),
        output_dropout=0.0
        if is_language(layer["make"])
        else convert(float, layer.pop("output_dropout"), "layer.output_dropout"),
        embedding=layer.pop("embedding", None),
        missing=layer.pop("missing", None),
        mask_input=layer.pop("mask_input", False),
        dt_input=layer.pop("dt_input", False),
        layer={name: value for name, value in layer.items() if name != "make"},
        task=task_of(description),
        training=build(Training, description["training"], "training"),
    )


def task_of(description: Mapping[str, Any]) -> Task:
    """The task of a run. For a user-defined task no code is imported: its sizes are in the configuration."""
    name = str(description["task"].get("name"))
    if name not in TASKS and (is_own(name) or "interface" in description):
        return Described(name, description.get("interface") or {})
    return make_task(description["task"], "task")


def read_description(directory: Path) -> dict[str, Any]:
    """Read the configuration of a run."""
    import yaml

    from . import text

    path = directory / "config.yaml"
    try:
        content = files.read(directory, path.name)
        if content is None:
            raise ValueError(f"expected a run folder with config.yaml, got {directory}, which has none")
        description = text.read(content.decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"expected YAML in {path}, got a file that cannot be read") from None
    if not isinstance(description, dict) or not {"model", "task", "layer", "training"} <= description.keys():
        raise ValueError(f"expected the configuration of a run with model, task, layer and training, got {path}")
    return description
