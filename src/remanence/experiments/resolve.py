"""From an experiment file to an experiment that can run: preset, overrides, shared and own arguments of every model."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from torch import nn

from ..models import KNOWN as LANGUAGE_MODELS
from ..models import LanguageModel
from ..models.inputs import Missing
from ..names import lookup
from ..nn import KNOWN as MODELS
from ..nn.lstm import LSTM
from ..tasks import KNOWN as TASKS
from ..tasks.base import Task
from ..timescales import KNOWN as TIMESCALES
from ..timescales import Fixed, Timescales
from ..timescales.initial import Freeze
from ..training.config import Training
from .build import build, convert, expect_known, expect_mapping, join
from .merge import merge, override
from .own_tasks import is_own, own_task
from .schema import PRESETS, Experiment, Model, Number

OF_READOUT = ("output_dropout", "embedding", "missing", "mask_input", "dt_input")
"""Fields of a model outside its layer. A language model takes some of them as its own arguments and lacks the rest."""
OF_MODEL = ("make", "hidden_size", *OF_READOUT, "task", "training", "parameters")
"""Fields of a model that are not arguments of its layer."""
LANGUAGE = "language/"
"""Prefix of the names of language models, as in "language/mts": `remanence.make` has an "mts" too."""
TORCH: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"torch-lstm": nn.LSTM, "torch-gru": nn.GRU}
"""Layers of torch, for comparison."""
NOT_TO_SET = ("input_size", "vocabulary", "hidden_size", "batch_first", "device", "dtype", "keywords")
"""Layer arguments that the task, the device or the training loop determines."""
FIELDS = [field.name for field in fields(Experiment) if field.name not in ("preset", "left_out")]


def resolve(written: Mapping[str, Any], preset: str, overrides: Iterable[str] = ()) -> Experiment:
    """Build an experiment from the contents of its file.

    Args:
        written: contents of the file.
        preset: "smoke", "short" or "paper".
        overrides: `path=value` assignments; they take precedence over everything else.
    """
    lookup("preset", preset, dict.fromkeys(PRESETS))
    presets = expect_mapping(written.get("presets") or {}, "presets")
    expect_known(presets, PRESETS, "presets")
    values = merge({name: value for name, value in written.items() if name != "presets"}, presets.get(preset) or {})
    for assignment in overrides:
        values = override(values, assignment)
    expect_known(values, [*FIELDS, "task", "model", "training"], "")
    task, model, training = (values.pop(name, None) for name in ("task", "model", "training"))
    own = expect_mapping(values.pop("models", None) or {}, "models")
    before = {name for name, given in (written.get("models") or {}).items() if given is not None}
    if task is not None:
        make_task(task, "task")
    build(Training, training or {}, "training")
    models = {name: one_model(name, task, model, training, given) for name, given in own.items() if given is not None}
    published = {
        quantity: {name: Number.read(value, f"published.{quantity}.{name}") for name, value in numbers.items()}
        for quantity, numbers in (values.pop("published", None) or {}).items()
    }
    seeds = convert(int | list[int], values.pop("seeds", 1), "seeds")
    rest = build(Experiment, {**values, "preset": preset})
    for name in rest.extra:
        lookup("extra", name, own)
    return replace(
        rest,
        models=models,
        left_out=[name for name, given in own.items() if given is None and name in before],
        published=published,
        seeds=seeds if isinstance(seeds, list) else list(range(1, seeds + 1)),
    )


def one_model(name: str, task: Any, shared: Any, training: Any, own: Any) -> Model:
    """Build a model, with the settings that all models share filled in."""
    path = f"models.{name}"
    shared, own = expect_mapping(shared or {}, "model"), expect_mapping(own, path)
    values = {"make": name, **merge(shared, own)}
    make = convert(str, values["make"], join(path, "make"))
    known = [*MODELS, *TORCH, *(LANGUAGE + name for name in LANGUAGE_MODELS)]
    lookup(join(path, "make"), make, dict.fromkeys(known))
    arguments = layer_arguments(make)
    fixed = [field for field in OF_MODEL if not (is_language(make) and field in OF_READOUT)]
    expect_known(shared, [*fixed[: fixed.index("task")], *arguments], "model", where=f" (model {make!r})")
    expect_known(own, [*fixed, *arguments], path)
    own_task, own_training = (expect_mapping(own.get(part) or {}, join(path, part)) for part in ("task", "training"))
    if "hidden_size" not in values:
        raise ValueError(f"expected {join(path, 'hidden_size')} to be given, got nothing")
    make_timescales(values.get("timescales"), where("timescales", own, path))  # reports mistakes early
    return Model(
        name=name,
        make=make,
        hidden_size=convert(int, values["hidden_size"], where("hidden_size", own, path)),
        output_dropout=0.0
        if is_language(make)
        else convert(float, values.get("output_dropout", 0.0), where("output_dropout", own, path)),
        embedding=convert(int | None, values.get("embedding"), where("embedding", own, path)),
        **{
            name: convert(kind, values[name], where(name, own, path))
            for name, kind in (("missing", Missing | None), ("mask_input", bool), ("dt_input", bool))
            if name in values and name in fixed
        },
        layer={key: value for key, value in values.items() if key not in fixed},
        task=make_task(merge(task or {}, own_task), join(path, "task")),
        training=build(Training, merge(training or {}, own_training), join(path, "training")),
        parameters=convert(int | None, own.get("parameters"), join(path, "parameters")),
    )


def where(name: str, own: Mapping[str, Any], path: str) -> str:
    """Path of a value in the file: under the model itself, or under the settings that all models share."""
    return join(path if name in own else "model", name)


def is_language(make: str) -> bool:
    """Whether a model is one of `remanence.models.KNOWN`."""
    return make.startswith(LANGUAGE)


def layer_arguments(make: str) -> list[str]:
    """Names of the model arguments that a configuration may set."""
    if make in TORCH:  # their signature is *args, **kwargs
        return ["num_layers", "bias", "dropout", "bidirectional", *(["proj_size"] if make == "torch-lstm" else [])]
    maker = LANGUAGE_MODELS[make.removeprefix(LANGUAGE)] if is_language(make) else MODELS[make]
    taken = inspect.signature(maker).parameters
    names = dict.fromkeys(taken)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        names |= dict.fromkeys(inspect.signature(LanguageModel if is_language(make) else LSTM).parameters)
    return [name for name in names if name not in NOT_TO_SET]


def make_task(values: Any, path: str) -> Task:
    """Build a task from its name and arguments."""
    arguments = dict(expect_mapping(values, path))
    if "name" not in arguments:
        raise ValueError(f"expected {join(path, 'name')} to be given, got nothing")
    name = arguments.pop("name")
    kind = own_task(name, join(path, "name")) if is_own(name) else lookup(join(path, "name"), name, TASKS)
    try:
        return build(kind, arguments, path)
    except ValueError as error:
        raise placed(error, path, [field.name for field in fields(kind)]) from None  # type: ignore[arg-type]


def placed(error: Exception, path: str, names: Iterable[str]) -> ValueError:
    """The same message with the full path of the field, if it names one of these: "expected delay to be ..."."""
    words = str(error).split(" ", 2)
    if len(words) == 3 and words[0] == "expected" and words[1].strip(",") in names:
        words[1] = join(path, words[1])
    return ValueError(" ".join(words))


def make_timescales(values: Any, path: str) -> Timescales | list[Timescales | None] | None:
    """Build timescales from plain data: {name: inverse-gamma, alpha: 1.5, freeze: all}, or a list, one per layer.

    Args:
        values: a name of `remanence.timescales.KNOWN` and its arguments; or a list with one such mapping or null per
            layer.
        path: position in the configuration, for messages.
    """
    if isinstance(values, list | tuple):
        return [one_timescales(value, f"{path}[{number}]") for number, value in enumerate(values)]
    return one_timescales(values, path)


def one_timescales(values: Any, path: str) -> Timescales | None:
    """Timescales of one layer, or the same for all layers; None leaves the initialisation unchanged."""
    if values is None:
        return None
    arguments = dict(expect_mapping(values, path))
    if "name" not in arguments:
        raise ValueError(f"expected {join(path, 'name')} to be given, got nothing")
    kind = lookup(join(path, "name"), arguments.pop("name"), TIMESCALES)
    try:
        return fixed_timescales(arguments, path) if kind is Fixed else build(kind, arguments, path)
    except (TypeError, ValueError) as error:
        # The classes name a field without its path, and call the values of Fixed "timescales".
        first, _, rest = str(error).removeprefix("expected ").partition(" ")
        field = "values" if first == "timescales" else first
        raise ValueError(f"expected {join(path, field)} {rest}" if field in arguments else str(error)) from None


def fixed_timescales(arguments: dict[str, Any], path: str) -> Fixed:
    """Timescales given as numbers: one for all units, or one per unit."""
    expect_known(arguments, ("values", "freeze"), path)
    if "values" not in arguments:
        raise ValueError(f"expected {join(path, 'values')} to be given, got nothing")
    values = convert(float | list[float], arguments["values"], join(path, "values"))
    freeze = convert(Freeze, arguments.get("freeze", False), join(path, "freeze"))
    return Fixed(values, freeze=freeze)
