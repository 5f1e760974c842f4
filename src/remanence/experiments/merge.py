"""Merge nested mappings: presets over experiments, and `--set` overrides over both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from ..training.config import Training
from . import text
from .build import expect_known

SETTABLE = {
    "training": ("task", "model", "models", "training", "report"),
    "analysis": ("arguments",),
    "simulation": ("arguments",),
}
"""Fields that `--set` may change, by kind of experiment. Training with a closing analysis also has arguments."""
LONGEST = 60
"""Most characters of a value in an error message."""


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below` with the values of `above` on top: mappings are merged recursively, everything else is replaced."""
    result = dict(below)
    for name, value in above.items():
        old = result.get(name)
        result[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def override(values: Mapping[str, Any], assignment: str) -> dict[str, Any]:
    """Apply one `path=value` override, such as `train.lr=3e-4`, to a copy of `values`.

    The value is parsed as YAML. `train` is short for `training`, and the names of its parts may be omitted: `train.lr`
    is `training.optimiser.lr`. An override in `task`, `model` or `training` applies to all models and replaces the
    values that single models have there.
    """
    written, equals, value = assignment.partition("=")
    written = written.strip()
    if not equals or not written:
        raise ValueError(f"expected --set to be given PATH=VALUE, such as train.lr=3e-4, got {assignment!r}")
    path = full_path(written, values)
    result = put(values, path, read_value(written, value))
    if path[0] in ("task", "model", "training"):
        inner = path[1:] if path[0] == "model" else path
        models = values.get("models") or {}
        result["models"] = {name: without(own, inner) for name, own in models.items()}
    return result


def read_value(path: str, value: str) -> Any:
    """Parse the value of an assignment."""
    import yaml

    try:
        return text.read(value)
    except yaml.YAMLError:
        raise ValueError(f"expected the value of {path} to be YAML, got {shortened(value.strip())!r}") from None


def shortened(value: str) -> str:
    """Truncate a long value."""
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}..."


def full_path(written: str, values: Mapping[str, Any]) -> list[str]:
    """Split a dotted path and expand its short names."""
    parts = split(written, values)
    if parts[0] == "train":
        parts[0] = "training"
    settable = SETTABLE[values.get("kind", "training")]
    if values.get("function") is not None and "arguments" not in settable:
        settable = (*settable, "arguments")
    expect_known(parts[:1], settable, "", where=" to set")
    if len(parts) == 1:
        raise ValueError(f"expected --set to name a field of {parts[0]}, got {written!r}")
    place = parts.index("training") + 1 if "training" in parts else None
    if place is not None and place < len(parts):
        parts[place:place] = part_of_training(parts[place])
    return parts


def split(written: str, values: Mapping[str, Any]) -> list[str]:
    """Split a dotted path. An existing name that contains a dot, such as the model `p-0.5`, stays one part."""
    parts: list[str] = []
    rest, here = written, values
    while rest:
        inside = sorted((name for name in here if rest == name or rest.startswith(f"{name}.")), key=len)
        part = inside[-1] if inside else rest.split(".")[0]
        rest = rest[len(part) + 1 :]
        parts.append(part)
        below = here.get(part)
        here = below if isinstance(below, Mapping) else {}
    return parts


def part_of_training(name: str) -> list[str]:
    """The only part of the training configuration that has a field of this name; empty if the whole has it itself."""
    own = get_type_hints(Training)
    if name in own:
        return []
    parts = {part: kind for part, kind in own.items() if is_dataclass(kind)}
    having = [part for part, kind in parts.items() if name in [field.name for field in fields(kind)]]
    return having if len(having) == 1 else []


def put(values: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """A copy with one value set."""
    result = dict(values)
    first, *rest = path
    if rest:
        below = result.get(first)
        result[first] = put(below if isinstance(below, Mapping) else {}, rest, value)
    else:
        result[first] = value
    return result


def without(values: Any, path: list[str]) -> Any:
    """A copy with one value removed."""
    if not isinstance(values, Mapping) or path[0] not in values:
        return values
    result = dict(values)
    if len(path) == 1:
        del result[path[0]]
    else:
        result[path[0]] = without(result[path[0]], path[1:])
    return result
