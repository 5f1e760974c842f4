"""Build dataclasses from plain data. Every value is checked against its type; messages name the field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Thing = TypeVar("Thing")


def build(kind: type[Thing], values: object, path: str = "") -> Thing:
    """Build the dataclass `kind` from a mapping.

    Args:
        kind: a dataclass. Its fields may be numbers, strings, booleans, literals, lists, tuples, mappings, dataclasses,
            and unions of these.
        values: a mapping from field names to plain data; omitted fields keep their default.
        path: position of the mapping in the configuration; prefixes field names in messages.
    """
    if isinstance(values, kind):
        return values
    mapping = expect_mapping(values, path)
    known = [field for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
    expect_known(mapping, [field.name for field in known], path)
    for field in known:
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in mapping:
            raise ValueError(f"expected {join(path, field.name)} to be given, got nothing")
    types = get_type_hints(kind)
    return kind(**{name: convert(types[name], value, join(path, name)) for name, value in mapping.items()})


def convert(kind: Any, value: object, path: str) -> Any:
    """Convert `value` to `kind`; a ValueError names the field, the expected type and the value."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        return convert_to_one(arguments, value, path)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return build(kind, value, path)
    if origin is Literal and value in arguments and not isinstance(value, bool):
        return value
    if origin in (list, tuple, Sequence) and isinstance(value, list | tuple):
        return convert_items(kind, value, path)
    if origin is dict:
        inner = arguments[1]
        return {name: convert(inner, item, join(path, name)) for name, item in expect_mapping(value, path).items()}
    if kind is float and (number := as_float(value)) is not None:
        return number
    if kind is int and (number := as_float(value)) is not None and number.is_integer():
        return value if isinstance(value, int) else int(number)
    if kind in (bool, str) and isinstance(value, kind):
        return value
    if kind is type(None) and value is None:
        return None
    raise ValueError(f"expected {path} to be {in_words(kind)}, got {shown(value)}")


def convert_to_one(kinds: tuple[Any, ...], value: object, path: str) -> Any:
    """Convert `value` to the first type that fits."""
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    for kind in kinds:
        try:
            return convert(kind, value, path)
        except ValueError:
            if len(kinds) == 1:
                raise
    raise ValueError(f"expected {path} to be {' or '.join(in_words(kind) for kind in kinds)}, got {shown(value)}")


def convert_items(kind: Any, values: list[Any] | tuple[Any, ...], path: str) -> Any:
    """Convert every item of a list or tuple."""
    arguments = get_args(kind)
    alike = get_origin(kind) is not tuple or arguments[-1] is Ellipsis
    kinds = [arguments[0]] * len(values) if alike else list(arguments)
    if len(kinds) != len(values):
        raise ValueError(f"expected {path} to be {in_words(kind)}, got {shown(values)}")
    items = [convert(one, value, f"{path}[{n}]") for n, (one, value) in enumerate(zip(kinds, values, strict=True))]
    return tuple(items) if get_origin(kind) is tuple else items


def expect_mapping(values: object, path: str) -> Mapping[str, Any]:
    """Check that `values` is a mapping with string keys."""
    if isinstance(values, Mapping) and all(isinstance(name, str) for name in values):
        return values
    raise ValueError(f"expected {path or 'the configuration'} to be a mapping of names to values, got {shown(values)}")


def expect_known(given: Iterable[str], known: Iterable[str], path: str, where: str = "") -> None:
    """Raise a ValueError for the first unknown name, with the closest known one."""
    names = list(known)
    for name in given:
        if name not in names:
            nearest = get_close_matches(name, names, n=1, cutoff=0.5)
            suggestion = f"; did you mean {join(path, nearest[0])}?" if nearest else ""
            raise ValueError(
                f"expected {path or 'the configuration'} to have fields among {', '.join(names)}{where}, "
                f"got {join(path, name)}{suggestion}"
            )


def as_float(value: object) -> float | None:
    """Convert to float, also from a string such as 1e-3, which YAML 1.1 does not parse as a number; None on failure."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError):
        return None


def join(path: str, name: str) -> str:
    """Append a name to a dotted path."""
    return f"{path}.{name}" if path else str(name)


def shown(value: object) -> str:
    """The repr of a value for a message, truncated if long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def in_words(kind: Any) -> str:
    """A type in plain English, for messages."""
    origin, arguments = get_origin(kind), get_args(kind)
    simple = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    if kind in simple:
        return simple[kind]
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (list, Sequence) or (origin is tuple and arguments[-1] is Ellipsis):
        return f"a list (each {in_words(arguments[0])})"
    if origin is tuple:
        return f"a list of {len(arguments)} (each {in_words(arguments[0])})"
    if origin in (Union, UnionType):
        return " or ".join(in_words(one) for one in arguments)
    return "a mapping of names to values"
