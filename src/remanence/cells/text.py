"""Serialises cells to text (name, settings, gate) for graphs that contain a cell's operator.

A custom class is stored with the name of its module and is found again if that module has been imported. Loading never
imports a module or runs code.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ..gates import KNOWN, Gate
from .base import NOTED, Cell
from .goru import ModReLUGRUCell
from .gru import GRUCell
from .janet import JANETCell
from .lstm import LSTMCell
from .modrelu import ComplexModReLUCell, ModReLUCell
from .nru import NRUCell
from .phased import PhasedLSTMCell
from .sru import SRUCell

CELLS: dict[str, type[Cell]] = {
    cell.name: cell
    for cell in (
        *(LSTMCell, GRUCell, JANETCell, PhasedLSTMCell, NRUCell, SRUCell),
        *(ModReLUCell, ComplexModReLUCell, ModReLUGRUCell),
    )
}
"""All cells that engines run."""
LOCAL = "local "
"""Prefix of the text of a cell that is only known to this process."""
_known: dict[str, Cell] = {}


def as_text(cell: Cell) -> str:
    """A cell as text; cached on the cell."""
    found: str | None = getattr(cell, "_text", None)
    if found is None:
        try:
            found = json.dumps(_plain(cell), sort_keys=True)
        except TypeError:  # a setting that is not plain data
            found = f"{LOCAL}{len(_known)} {type(cell).__name__}"
        _known.setdefault(found, cell)
        object.__setattr__(cell, "_text", found)  # the cell is frozen, and this is not a field
    return found


def from_text(text: str) -> Cell:
    """The cell that a text describes."""
    cell = _known.get(text)
    if cell is None:
        if text.startswith(LOCAL):
            raise ValueError(f"expected a cell that was made in this process, got {text!r} of another process")
        cell = _known[text] = _restored(json.loads(text))
    return cell


def _plain(value: Any) -> Any:
    if isinstance(value, Cell | Gate):
        return {"class": _name(type(value)), **{name: _plain(part) for name, part in _settings(value).items()}}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_restored, value))
    if not isinstance(value, dict):
        return value
    settings = {name: _restored(part) for name, part in value.items() if name != "class"}
    kind: Any = _class(value["class"])
    if dataclasses.is_dataclass(kind):
        return kind(**settings)  # type: ignore[operator]
    made = object.__new__(kind)
    vars(made).update(settings)
    return made


def _settings(value: Cell | Gate) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return {name: part for name, part in vars(value).items() if name not in NOTED}


def _name(kind: type[Any]) -> str:
    for known in (CELLS, KNOWN):
        if known.get(kind.name) is kind:
            return str(kind.name)
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> Any:
    if ":" not in name:
        found = CELLS.get(name) or KNOWN.get(name)
        if found is None:
            raise ValueError(f"expected a cell or gate of this package or a registered one, got {name!r}")
        return found
    for kind in (*_subclasses(Cell), *_subclasses(Gate)):
        if f"{kind.__module__}:{kind.__qualname__}" == name:
            return kind
    raise ValueError(f"expected {name} to be imported before the program that uses it runs, got no such class")


def _subclasses(kind: type[Any]) -> list[type[Any]]:
    return [found for own in kind.__subclasses__() for found in (own, *_subclasses(own))]
