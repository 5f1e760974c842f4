"""Starting a kernel that has been started before.

Triton looks at every argument of every call to find the compiled kernel, which takes the host longer than a short
sequence takes the device. What decides is few things, and they are known here.
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
    """Start a kernel.

    Args:
        kernel: what to start; tensors come first among its parameters, then numbers, then constants.
        constants: makes the constants of a kind, and Triton's options.
        kind: what the constants depend on, and the numbers that Triton compiles for.
        grid: how many programs.
        tensors: None where there is none.
        numbers: whole numbers and floats.
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
    if hasattr(compiled, "packed_metadata"):  # the interpreter compiles nothing
        names = kernel.arg_names[len(tensors) + len(numbers) :]
        _compiled[key] = compiled, tuple(named[name] for name in names)
