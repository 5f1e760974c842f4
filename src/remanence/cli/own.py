"""Custom gates and cells that a user names on the command line as `module:Name`."""

from __future__ import annotations

import sys
from typing import Any

from ..cells import GatedCell
from ..gates import Gate, gate_named
from ..names import imported


def gate_of(text: str) -> Gate:
    """The built-in gate of that name, or `module:Name`: a gate object, or a gate class without required arguments."""
    return gate_named(_found("gate", text, Gate) if ":" in text else text)


def cell_of(text: str, gate: Gate) -> GatedCell:
    """The cell `module:Name`: a cell object, or a cell class that takes only a gate."""
    if ":" not in text:
        raise ValueError(f"expected --cell to be module:Name, got {text!r}")
    found: GatedCell = _found("cell", text, GatedCell, gate)
    return found


def import_from_current_folder() -> None:
    """Let modules be imported from the current folder as well."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _found(kind: str, text: str, wanted: type, *arguments: Any) -> Any:
    """The object `module:Name`, or an instance if it is a class. The current folder is searched as well."""
    import_from_current_folder()
    found = imported(f"--{kind}", text)
    if isinstance(found, type) and issubclass(found, wanted):
        try:
            found = found(*arguments)
        except TypeError as error:
            given = "no arguments" if not arguments else "no argument but a gate"
            raise ValueError(f"expected {text!r} to require {given}, got {error}") from error
    if not isinstance(found, wanted):
        got = "nothing of that name" if found is None else type(found).__name__
        raise ValueError(f"expected {text!r} to be a {kind} or a {kind} class, got {got}")
    return found
