"""Conversion of model arguments to plain data and back: gates and timescales become mappings."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from torch import Tensor

from .. import gates, timescales
from ..cells.base import NOTED
from ..gates import Gate
from ..names import lookup
from ..timescales import Timescales

TIMESCALES = {kind.__name__: kind for kind in timescales.KNOWN.values()}


def plain(value: Any) -> Any:
    """Convert an argument of a model to JSON-compatible data.

    Args:
        value: A gate, timescales, a tensor, plain data, or a list of these.

    Raises:
        ValueError: A gate is not registered in `remanence.gates.KNOWN`, so that loading would not find it, or its
            settings are not those of a dataclass.

    Examples:
        >>> from remanence import gates, pretrained
        >>> pretrained.plain(gates.PowerLaw(p=0.5))
        {'gate': 'power_law', 'p': 0.5, 'eps': 0.001, 'reset_age': 0.0}
    """
    if isinstance(value, Gate):
        return {"gate": _registered(value), **_settings(value)}
    if isinstance(value, Timescales):
        return {"timescales": type(value).__name__, **_settings(value)}
    if isinstance(value, Tensor):
        return value.tolist()
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def restored(value: Any) -> Any:
    """The inverse of `plain`.

    Args:
        value: Data from `plain`.

    Examples:
        >>> from remanence import pretrained
        >>> pretrained.restored({"timescales": "Chrono", "t_max": 500.0, "freeze": False})
        Chrono(freeze=False, t_max=500.0)
    """
    if isinstance(value, dict):
        rest = dict(value)
        for kind, known in (("gate", gates.KNOWN), ("timescales", TIMESCALES)):
            if kind in rest:
                return lookup(kind, rest.pop(kind), known)(**{name: restored(part) for name, part in rest.items()})
    return [restored(part) for part in value] if isinstance(value, list) else value


def as_json(value: Any, **how: Any) -> str:
    """Plain data as JSON text."""
    try:
        return json.dumps(value, allow_nan=False, **how)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected arguments that are plain data (finite numbers, text, None), got: {error}") from None


def _registered(gate: Gate) -> str:
    kind = type(gate)
    if gates.KNOWN.get(kind.name) is not kind:
        raise ValueError(
            f"expected a registered gate, which loading can find by name, got {kind.__name__}; register it with "
            f"remanence.gates.KNOWN[{kind.name!r}] = {kind.__name__}, here and before loading"
        )
    return kind.name


def _settings(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: plain(getattr(value, name)) for name in fields}
    own = [name for name in vars(value) if name not in NOTED]
    if own:
        raise ValueError(
            f"expected a gate with settings to be a dataclass, so that it can be recreated, got "
            f"{type(value).__name__} with {', '.join(own)}"
        )
    return {}
