"""Memoises launches and loaded kernels: for short sequences, finding them takes longer than the launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..kernels.contract import Kind, Operands
from ..transforms import PLAIN
from .driver import Kernel

Variant = TypeVar("Variant")
Value = TypeVar("Value")
MOST = 1024
"""Number of values by sizes that are kept: sequences of varying length have many sizes."""

_memos: list[dict[Any, Any]] = []


def forget() -> None:
    """Forget all values, for tests that replace the GPU."""
    for known in _memos:
        known.clear()


class BySizes(Generic[Value]):
    """A function of kernel variant and operands that depends on the sizes, dtype and device of the operands only.

    Args:
        find: The function. Further arguments must be hashable.
    """

    def __init__(self, find: Callable[..., Value]) -> None:
        self.find = find
        self.known: dict[tuple[Any, ...], Value] = {}
        _memos.append(self.known)

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


class ByVariant(Generic[Variant]):
    """A function that loads the kernel of a variant, with a constant that only one pass has.

    Args:
        make: The function.
    """

    def __init__(self, make: Callable[[Variant, bool], Kernel]) -> None:
        self.make = make
        self.known: dict[tuple[Variant, bool], Kernel] = {}
        _memos.append(self.known)

    def __call__(self, of: Variant, constant: bool, first: Callable[[], None] | None = None) -> Kernel:
        """A kernel, loaded on first use. In that case `first` is called before it is compiled."""
        kernel = self.known.get((of, constant))
        if kernel is None:
            if first is not None:
                first()
            kernel = self.known[of, constant] = self.make(of, constant)
        return kernel
