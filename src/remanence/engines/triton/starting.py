"""Fast launches of kernels that are compiled already.

Triton inspects every argument of every call to find the compiled kernel, which takes the host longer than a short
sequence takes the GPU. Only a few things decide which kernel it is, and they are known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from ..kernels.compiling import told

_compiled: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}


def start(
    kernel: Any,
    constants: Callable[..., dict[str, Any]],
    kind: tuple[Any, ...],
    grid: tuple[int],
    tensors: Sequence[Tensor | None],
    numbers: Sequence[float],
) -> None:
    """Launch a kernel.

    Args:
        kernel: Triton kernel. Its parameters are tensors, then numbers, then constants.
        constants: Returns the constexpr arguments of a kind, and Triton's launch options.
        kind: Arguments of `constants`, which also decide the specialisation on numbers.
        grid: Number of programs.
        tensors: Tensor arguments; None for missing ones.
        numbers: Integer and float arguments.
    """
    looks = tuple(None if t is None else (t.dtype, t.data_ptr() % 16 == 0) for t in tensors)
    key = (kernel, kind, looks, tensors[0].device)  # type: ignore[union-attr]
    known = _compiled.get(key)
    if known is not None:
        compiled, rest = known
        compiled[(*grid, 1, 1)](*tensors, *numbers, *rest)
        return
    named = constants(*kind)
    with told():
        compiled = kernel[grid](*tensors, *numbers, **named)
    if hasattr(compiled, "packed_metadata"):  # not from the interpreter, which compiles nothing
        names = kernel.arg_names[len(tensors) + len(numbers) :]
        _compiled[key] = compiled, tuple(named[name] for name in names)
