"""Memoises what follows from the sizes of operands: for short sequences, finding it takes longer than the launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..transforms import PLAIN
from .contract import Kind, Operands

Value = TypeVar("Value")
MOST = 1024
"""Number of values that are kept: sequences of varying length have many sizes."""


class Remembered(Generic[Value]):
    """A function of kernel variant and operands that depends on the sizes, dtype and device of the operands only.

    Args:
        find: The function. Further arguments must be hashable.
    """

    def __init__(self, find: Callable[..., Value]) -> None:
        self.find = find
        self.known: dict[tuple[Any, ...], Value] = {}

    def __call__(self, kind: Kind, operands: Operands, *more: Any) -> Value:
        """The value, computed on first use."""
        inputs, weight_ih, weight_hh, _, _, _, dt, lengths, *_ = operands
        if type(inputs) not in PLAIN:  # sizes of fake tensors may be symbols
            return self.find(kind, operands, *more)
        sizes = inputs.shape, weight_ih.shape, weight_hh.shape, dt is None, lengths is None
        key = (kind, inputs.dtype, inputs.device, *sizes, *more)
        value = self.known.get(key)
        if value is None:
            value = self.find(kind, operands, *more)
            if len(self.known) >= MOST:
                self.known.clear()
            self.known[key] = value
        return value

    def cache_clear(self) -> None:
        """Forget all values."""
        self.known.clear()
