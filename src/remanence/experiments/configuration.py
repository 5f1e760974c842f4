"""The full configuration of an experiment, as plain data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..table import Table
from ..training.config import Training, plain
from .models import count_parameters, describe_layer
from .own_tasks import describe_task
from .schema import Experiment, Model

SHOWN = ("batch", "epochs", "optimiser.name", "optimiser.lr")
"""Training fields that are always shown; others are shown if they differ from their default."""


def configuration(experiment: Experiment) -> dict[str, Any]:
    """The full configuration of an experiment, with preset and overrides applied."""
    about = plain(experiment)
    if not experiment.models:
        about.pop("report")
        about.pop("seeds")
    about["models"] = {
        name: {
            "layer": describe_layer(model),
            "parameters": count_parameters(model),
            "task": describe_task(model.task),
            "training": plain(model.training),
        }
        for name, model in experiment.models.items()
    }
    return {name: value for name, value in about.items() if value not in (None, [], {})}


def in_words(experiment: Experiment, described: Mapping[str, Any]) -> dict[str, str]:
    """One line of text per part of an experiment."""
    lines: dict[str, str] = {}
    models = described.get("models", {})
    if models:
        first = next(iter(models.values()))
        task = {name: value for name, value in first["task"].items() if name not in ("name", "data")}  # digests
        lines["task"] = f"{first['task']['name']}: {listed(shared(task, [model['task'] for model in models.values()]))}"
        training = [flat(model["training"]) for name, model in models.items() if name not in experiment.extra]
        usual = flat(plain(Training()))
        common = shared(training[0], training)
        lines["training"] = listed(
            {short(name): value for name, value in common.items() if name in SHOWN or value != usual.get(name)}
        )
        lines["seeds"] = ", ".join(map(str, experiment.seeds))
        report = experiment.report
        unit = f" in {report.unit}" if report.unit else ""
        lines["reports"] = f"{report.split} {report.score}{unit}, mean and sample standard deviation over seeds"
    for name, need in experiment.needs.items():
        which = "all models" if need.models is None else ", ".join(need.models)
        lines[f"needs {name}"] = f"{need.experiment} ({which}); missing runs are trained first"
    if experiment.function is not None:
        lines["function"] = f"{experiment.function}: {listed(experiment.arguments)}"
    if experiment.extra:
        lines["with --models"] = f"{', '.join(experiment.extra)}: run only if requested"
    if experiment.left_out:
        lines["leaves out"] = f"{', '.join(experiment.left_out)} in this preset"
    return lines


def models_table(experiment: Experiment) -> Table:
    """The models with their sizes."""
    models = list(experiment.models.values())
    usual = [experiment.models[name] for name in experiment.usual] or models
    tasks = [plain(model.task) for model in usual]
    training = [flat(plain(model.training)) for model in usual]
    rows = [
        (
            model.name,
            model.make,
            str(model.hidden_size),
            f"{count_parameters(model):,}",
            listed(
                {
                    **own_layer(model),
                    **different(tasks[0], tasks, plain(model.task), "task."),
                    **different(training[0], training, flat(plain(model.training)), ""),
                }
            ),
        )
        for model in models
    ]
    return Table("", ("model", "layer", "units", "parameters", "own settings"), rows, words=2, text=1)


def published_table(experiment: Experiment) -> Table:
    """Published numbers, one row each."""
    rows = [
        (quantity, name, f"{number.mean:g}" + ("" if number.std is None else f" +- {number.std:g}"))
        for quantity, numbers in experiment.published.items()
        for name, number in numbers.items()
    ]
    return Table("", ("quantity", "model", "published"), rows, words=2)


def own_layer(model: Model) -> dict[str, Any]:
    """Settings of a model besides its size and task: arguments of its layer and of the read-out around it."""
    around = {name: getattr(model, name) for name in ("output_dropout", "missing", "mask_input", "dt_input")}
    return {**model.layer, **{name: value for name, value in around.items() if value}}


def shared(first: Mapping[str, Any], every: list[Any]) -> dict[str, Any]:
    """The entries that are the same in all mappings."""
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in every)}


def different(first: Mapping[str, Any], every: list[Any], own: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The entries of one model that not all models share."""
    same = shared(first, every)
    return {prefix + short(name): value for name, value in own.items() if name not in same or same[name] != value}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def short(name: str) -> str:
    """Shorten a dotted name if it stays clear."""
    return {"optimiser.name": "optimiser", "schedule.name": "schedule"}.get(name, name.removeprefix("optimiser."))


def listed(values: Mapping[str, Any]) -> str:
    """Names and values on one line."""
    return ", ".join(f"{name} {one(value)}" for name, value in values.items() if value is not None)


def one(value: Any) -> str:
    """A value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(one, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + listed(value) + "}"
    return str(value)
