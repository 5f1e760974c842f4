"""Device functions of a cell and its gate, compiled from the source that is derived from their equations."""

from __future__ import annotations

import hashlib
import linecache
from functools import lru_cache
from typing import Any, NamedTuple

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from ..kernels.contract import Kind
from ..kernels.derive import DerivedCell
from ..kernels.derive import triton as printed
from . import cells, functions


class DeviceFunctions(NamedTuple):
    """Device functions of one cell, hand-written or derived, and of its gate, see `kernels.derive.triton`."""

    rows: int
    """Number of rows of the gate."""
    cell_forward: Any
    cell_slopes: Any
    cell_backward: Any
    gate_fixed: Any
    gate_own: Any
    gate_forward: Any
    gate_slopes: Any
    gate_backward: Any


@lru_cache(maxsize=256)
def device_functions(kind: Kind, has_dt: bool) -> DeviceFunctions:
    """The functions that the kernels of a kind call. A derived cell includes its gate: its gate_* are placeholders."""
    derived = kind.derived(has_dt)
    if isinstance(derived, DerivedCell):
        space = defined(printed.cell_source(derived))
        forward, slopes, backward = (space[f"cell_{name}"] for name in ("forward", "slopes", "backward"))
        own = (space["gate_fixed"], space["gate_own"])
        return DeviceFunctions(1, forward, slopes, backward, *own, forward, slopes, backward)
    space = defined(printed.source(derived))
    names = ("fixed", "own", "forward", "slopes", "backward")
    return DeviceFunctions(derived.rows, *cells.DEVICE[kind.cell], *(space[f"gate_{name}"] for name in names))


@lru_cache(maxsize=256)
def defined(source: str) -> dict[str, Any]:
    """Execute a source and return its functions. Triton reads their text from `linecache`, as if from a file."""
    name = f"<derived {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {word: value for word, value in vars(functions).items() if not word.startswith("_")}
    space |= {"triton": triton, "tl": tl, "__name__": f"{__package__}.derived"}
    exec(compile(source, name, "exec"), space)
    return space
