"""Conversion of user data (tensors, arrays, lists, data sets, tables) to tensors, batch first: `(N, T, ...)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..base import Readout

NAMES = ("inputs", "targets", "dt", "times", "mask", "counts")
"""Keys that the items of a data set may have."""


def numbers(name: str, values: Any) -> Tensor:
    """Values as a tensor on the CPU; None becomes NaN."""
    try:
        if not isinstance(values, Tensor):
            array = numpy.array(values)
            if array.dtype == object:  # numbers and None
                array = array.astype(numpy.float64)
            values = torch.from_numpy(array)
    except (TypeError, ValueError):
        raise TypeError(f"expected {name} to hold numbers, got {shortly(values)}") from None
    known: Tensor = values.detach().cpu()
    if known.is_complex():
        raise TypeError(f"expected {name} to hold real numbers, got {known.dtype}")
    return known


def padded(name: str, values: Any) -> tuple[Tensor, Tensor | None]:
    """Values `(N, T, ...)`, zero-padded; and, if they came as a list, the length of every sequence `(N,)`.

    A list of scalars becomes one tensor: `(N,)`.
    """
    if isinstance(values, Tensor | numpy.ndarray):
        return numbers(name, values), None
    if not isinstance(values, Iterable) or isinstance(values, str | Mapping):
        raise TypeError(f"expected {name} to be a tensor, an array or a list of them, got {type(values).__name__}")
    parts = [numbers(name, value) for value in values]
    if not parts:
        raise ValueError(f"expected {name} of at least one sequence, got none")
    if any(part.is_floating_point() for part in parts):
        parts = [part if part.is_floating_point() else part.double() for part in parts]
    if all(part.dim() == 0 for part in parts):
        return torch.stack(parts), None
    alike = len({part.shape[1:] for part in parts}) == 1
    if not alike or not all(part.dim() and len(part) for part in parts):
        shapes = " and ".join(sorted({str(tuple(part.shape)) for part in parts})[:3])
        raise ValueError(f"expected {name} to have at least one step and all the same width, got shapes {shapes}")
    return pad_sequence(parts, batch_first=True), torch.tensor([len(part) for part in parts])


def from_dataset(dataset: Any) -> dict[str, list[Any]]:
    """Collect the items of a data set into lists by key."""
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        items: Iterable[Any] = (dataset[number] for number in range(len(dataset)))
    elif isinstance(dataset, Iterable):
        items = dataset
    else:
        raise TypeError(f"expected a data set with items, got {type(dataset).__name__}")
    found: dict[str, list[Any]] = {}
    for item in items:
        for name, value in _of_item(item).items():
            found.setdefault(name, []).append(value)
    if not found:
        raise ValueError("expected a data set of at least one sequence, got an empty one")
    count = len(found["inputs"])
    for name, values in found.items():
        if len(values) < count:
            raise ValueError(f"expected {name} in every item or in none, got it in {len(values)} of {count}")
    return found


def _of_item(item: Any) -> dict[str, Any]:
    if isinstance(item, Mapping):
        if "inputs" not in item or not set(item) <= set(NAMES):
            raise ValueError(
                f"expected items with inputs, and optionally {', '.join(NAMES[1:])}, got {', '.join(map(str, item))}"
            )
        return dict(item)
    if isinstance(item, tuple | list) and len(item) == 2:
        return {"inputs": item[0], "targets": item[1]}
    if isinstance(item, Tensor | numpy.ndarray):
        return {"inputs": item}
    raise TypeError(
        f"expected each item to be an input, an (input, target) pair or a mapping, got {type(item).__name__}"
    )


def from_table(
    table: Any,
    inputs: str | Sequence[str],
    targets: str | Sequence[str] | None,
    sequence: str | None,
    readout: Readout | None,
    **when: str | None,
) -> dict[str, Any]:
    """Columns of a table as arguments of `SequenceData`; see `SequenceData.from_table`."""
    features = _side_by_side(table, inputs)
    found: dict[str, Any] = {"inputs": features, "targets": None if targets is None else _side_by_side(table, targets)}
    found |= {name: _column(table, column) for name, column in when.items() if column is not None}
    if sequence is not None:
        places = _groups(_column(table, sequence))
        whole = {name: padded(name, column)[0] for name, column in found.items() if column is not None}
        found = {name: [column[rows] for rows in places] for name, column in whole.items()}
        if targets is not None and readout == "last":
            found["targets"] = [one[-1] for one in found["targets"]]
        elif targets is not None:
            readout = "every"
    return {**found, "readout": readout}


def _side_by_side(table: Any, names: str | Sequence[str]) -> Any:
    """A column, or several stacked as features: a list with one entry per row."""
    if isinstance(names, str):
        return _column(table, names)
    columns = [_column(table, name) for name in names]
    return [
        torch.stack([numbers(name, cell).double() for name, cell in zip(names, cells, strict=True)], -1)
        for cells in zip(*columns, strict=True)
    ]


def _column(table: Any, name: str) -> list[Any]:
    named = getattr(table, "column_names", None)  # Hugging Face datasets; iterating pandas or a mapping gives the names
    known = list(table if named is None else named)
    if name not in known:
        raise ValueError(f"expected a column out of {', '.join(map(str, known))}, got {name!r}")
    return list(table[name])


def _groups(values: Iterable[Any]) -> list[list[int]]:
    """The rows of every sequence; sequences in order of first appearance."""
    found: dict[Any, list[int]] = {}
    for row, value in enumerate(values):
        found.setdefault(value.item() if isinstance(value, Tensor) else value, []).append(row)
    return list(found.values())


def shortly(values: Any) -> str:
    """A value for an error message, shortened if it is long."""
    text = " ".join(repr(values).split())
    return text if len(text) <= 60 else text[:57] + "..."
