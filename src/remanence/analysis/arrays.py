"""Conversion of lists, arrays and tensors to NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray
from torch import Tensor

Numbers = NDArray[numpy.float64]
Integers = NDArray[numpy.int64]


def numbers(values: Any) -> Numbers:
    """Values as float64, of any shape and from any device."""
    return numpy.asarray(_array(values), dtype=numpy.float64)


def integers(name: str, values: Any) -> Integers:
    """Values as a one-dimensional array of integers."""
    array = _array(values)
    if array.ndim != 1 or (array.size and not numpy.issubdtype(array.dtype, numpy.integer)):
        raise ValueError(f"expected {name} to be a one-dimensional array of integers, got {array.dtype} {array.shape}")
    return array.astype(numpy.int64)


def _array(values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.double().numpy() if values.is_floating_point() else values.numpy()
    return numpy.asarray(values)
