"""A gate or a cell that a user names on the command line."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..cells import GatedCell
from ..gates import Gate, gate_named


def gate_of(text: str) -> Gate:
    """The gate of that name, or `module:Name`: a gate, or a class of gates that needs no arguments, in a module."""
    return gate_named(_found("gate", text, Gate) if ":" in text else text)


def cell_of(text: str, gate: Gate) -> GatedCell:
    """`module:Name`: a cell, or a class of cells that takes a gate and nothing else, in a module."""
    if ":" not in text:
        raise ValueError(f"expected --cell to be module:Name, got {text!r}")
    found: GatedCell = _found("cell", text, GatedCell, gate)
    return found


def look_here() -> None:
    """Look for modules in the present folder, too."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _found(kind: str, text: str, wanted: type, *arguments: Any) -> Any:
    """What `module:Name` is, or makes of these arguments. The module is looked for in the present folder, too."""
    module_name, _, name = text.partition(":")
    look_here()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module raises
        reason = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"expected --{kind} {text!r} to name a module that can be imported, got {reason}") from error
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, wanted):
        try:
            found = found(*arguments)
        except TypeError as error:
            given = "no arguments" if not arguments else "no argument but a gate"
            raise ValueError(f"expected {text!r} to need {given}, got {error}") from error
    if not isinstance(found, wanted):
        got = "nothing of that name" if found is None else type(found).__name__
        raise ValueError(f"expected {text!r} to be a {kind} or a class of {kind}s, got {got}")
    return found
