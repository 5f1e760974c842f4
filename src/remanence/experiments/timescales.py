"""Timescales as a file says them: {name: inverse-gamma, alpha: 1.5, freeze: all}, or a list of such, one per layer."""

from __future__ import annotations

from typing import Any

from ..names import lookup
from ..timescales import KNOWN, Fixed, Timescales
from ..timescales.initial import Freeze
from .build import build, convert, expect_known, expect_mapping, join


def make_timescales(values: Any, path: str) -> Timescales | list[Timescales | None] | None:
    """Timescales from plain data.

    Args:
        values: a name of `remanence.timescales.KNOWN` and its arguments; or a list with one of these or null for every
            layer.
        path: where they stand, for messages.
    """
    if isinstance(values, list | tuple):
        return [one(value, f"{path}[{number}]") for number, value in enumerate(values)]
    return one(values, path)


def one(values: Any, path: str) -> Timescales | None:
    """Timescales of one layer, or of all alike; None leaves them as they are."""
    if values is None:
        return None
    arguments = dict(expect_mapping(values, path))
    if "name" not in arguments:
        raise ValueError(f"expected {join(path, 'name')} to be given, got nothing")
    kind = lookup(join(path, "name"), arguments.pop("name"), KNOWN)
    try:
        return fixed(arguments, path) if kind is Fixed else build(kind, arguments, path)
    except (TypeError, ValueError) as error:
        # The classes name a field without its path, and the numbers of Fixed "timescales".
        first, _, rest = str(error).removeprefix("expected ").partition(" ")
        field = "values" if first == "timescales" else first
        raise ValueError(f"expected {join(path, field)} {rest}" if field in arguments else str(error)) from None


def fixed(arguments: dict[str, Any], path: str) -> Fixed:
    """Timescales given as numbers: one for all units, or one for each."""
    expect_known(arguments, ("values", "freeze"), path)
    if "values" not in arguments:
        raise ValueError(f"expected {join(path, 'values')} to be given, got nothing")
    values = convert(float | list[float], arguments["values"], join(path, "values"))
    freeze = convert(Freeze, arguments.get("freeze", False), join(path, "freeze"))
    return Fixed(values, freeze=freeze)
