"""Results as plain data: dictionaries, lists, numbers and strings, ready for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy
from torch import Tensor


class Result:
    """Base class of the results of analyses. Subclasses are dataclasses."""

    def plain(self) -> dict[str, Any]:
        """The result as dictionaries, lists and numbers, with None for NaN and infinity."""
        return {field.name: as_plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def as_plain(value: Any) -> Any:
    """Convert arrays, tensors, results and containers of them to plain data. NaN and infinity become None.

    Args:
        value: A result, array, tensor, or a list or mapping of them.
    """
    if isinstance(value, Result):
        return value.plain()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): as_plain(part) for name, part in value.items()}
    if isinstance(value, Tensor):
        return as_plain(value.detach().cpu().tolist())
    if isinstance(value, numpy.ndarray | numpy.generic):
        return as_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [as_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"expected numbers, strings or arrays in a result, got {type(value).__name__}")
