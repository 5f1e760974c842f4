"""The configuration of a model that was built in code, so that it can be rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any

from ..models import SequenceModel
from ..nn import EURNN, GORU, GRU, JANET, LSTM, NRU, SRU, ExpRNN, PhasedLSTM, PowerLawLSTM, UnitaryRNN
from ..pretrained import describe, plain
from ..tasks import Task
from ..timescales import KNOWN as TIMESCALES
from ..timescales import Timescales
from ..training.config import Training
from .models import FROM_CODE, build_model, describe_layer
from .resolve import TORCH
from .schema import Model

NAMES: dict[type, str] = {
    LSTM: "lstm",
    PowerLawLSTM: "plstm",
    GRU: "gru",
    JANET: "janet",
    NRU: "nru",
    PhasedLSTM: "phased",
    ExpRNN: "exprnn",
    UnitaryRNN: "urnn",
    EURNN: "eurnn",
    GORU: "goru",
    SRU: "sru",
}
"""Layer names by class. User-defined classes have no name."""


def layer_described(model: SequenceModel, task: Task, name: str) -> dict[str, Any]:
    """The part of a configuration that `build_model` needs, besides the task, to rebuild a model.

    A model that cannot be rebuilt, such as one with a user-defined gate, is described by its repr only.
    """
    layer = model.layer
    found = Model(
        name=name,
        make=FROM_CODE,
        hidden_size=layer.hidden_size,
        output_dropout=model.dropout.p,
        layer={"model": " ".join(str(model).split())},
        task=task,
        training=Training(),
        embedding=None if model.embedding is None else model.embedding.embedding_dim,
        missing=model.missing,
        mask_input=model.mask_input,
        dt_input=model.dt_input,
    )
    try:
        make, arguments = _arguments(layer)
    except ValueError:  # a gate that is not registered
        make = None
    if make is not None:
        known = Model(**{**vars(found), "make": make, "layer": arguments})
        if _is_the_same(known, model):
            found = known
    return describe_layer(found)


def _arguments(layer: Any) -> tuple[str | None, dict[str, Any]]:
    """The name of a layer and its arguments as plain data; None for a user-defined class."""
    for name, kind in TORCH.items():
        if type(layer) is kind:
            return name, _unusual(describe(layer)["arguments"], vars(kind(1, 1)))
    if type(layer) not in NAMES:
        return None, {}
    usual = {name: parameter.default for name, parameter in signature(type(layer)).parameters.items()}
    found = layer.pretrained_arguments()
    timescales = found.pop("timescales", None)
    found = {name: plain(value) for name, value in _unusual(found, usual).items()}
    if timescales is not None:
        each = [_timescales(entry) for entry in timescales]
        found["timescales"] = each[0] if all(entry is timescales[0] for entry in timescales) else each
    return NAMES[type(layer)], found


def _unusual(arguments: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that differ from their default, without the sizes that every model has."""
    return {
        name: value
        for name, value in arguments.items()
        if name not in ("input_size", "hidden_size") and value != usual.get(name)
    }


def _timescales(entry: Timescales | None) -> dict[str, Any] | None:
    name = next((name for name, kind in TIMESCALES.items() if type(entry) is kind), None)
    if entry is None or name is None or not is_dataclass(entry):
        return None
    return {"name": name, **{field.name: plain(getattr(entry, field.name)) for field in fields(entry)}}


def _is_the_same(known: Model, model: SequenceModel) -> bool:
    """Whether a configuration rebuilds a model with the same layers and the same weight shapes."""
    try:
        again = build_model(known, "meta")
    except (LookupError, TypeError, ValueError):
        return False
    cells = [getattr(one.layer, "cell", None) for one in (again, model) if isinstance(one, SequenceModel)]
    alike = len(cells) == 2 and cells[0] == cells[1] and str(again) == str(model)
    return alike and _shapes(again.state_dict()) == _shapes(model.state_dict())


def _shapes(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: weight.shape for name, weight in weights.items()}
