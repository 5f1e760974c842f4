"""C++ sources of compiled kernels; `cache` stores the binaries."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from .derive import DerivedCell, DerivedGate, cpp

HERE = Path(__file__).parent
FUNCTIONS, STATE, CELLS = HERE / "functions.cuh", HERE / "state.cuh", HERE / "cells.cuh"
"""The sources that kernels of all C++ engines start with; derived code is inserted between them."""


class CompilerError(RuntimeError):
    """There is no compiler, or it failed to compile the kernel."""


def joined(parts: Iterable[Path | str]) -> str:
    """Concatenate files and text into one source."""
    return "\n".join(_read(part) if isinstance(part, Path) else part for part in parts)


@lru_cache
def _read(path: Path) -> str:
    return path.read_text("utf-8")


def cell_sources(derived: DerivedGate | DerivedCell) -> tuple[Path | str, ...]:
    """The sources of a cell in C++: hand-written around a derived gate, or derived as a whole."""
    if isinstance(derived, DerivedCell):
        return FUNCTIONS, cpp.counts(derived), STATE, cpp.cell_source(derived)
    return FUNCTIONS, cpp.source(derived), STATE, CELLS
