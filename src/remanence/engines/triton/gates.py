"""Device functions of gates, from the source that is derived from their equations."""

from __future__ import annotations

import hashlib
import linecache
from functools import lru_cache
from typing import Any, NamedTuple

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from . import functions


class DeviceFunctions(NamedTuple):
    """Those of one gate, see `kernels.derive.triton`."""

    fixed: Any
    forward: Any
    slopes: Any
    backward: Any
    own: Any


@lru_cache(maxsize=256)
def gate_functions(source: str) -> DeviceFunctions:
    """The functions of a source. Triton reads their text from `linecache`, as if it were in a file."""
    name = f"<gate {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {word: value for word, value in vars(functions).items() if not word.startswith("_")}
    space |= {"triton": triton, "tl": tl, "__name__": f"{__package__}.derived"}
    exec(compile(source, name, "exec"), space)
    return DeviceFunctions(*(space[f"gate_{field}"] for field in DeviceFunctions._fields))
