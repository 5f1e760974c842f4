"""What machine code is made of; `cache` keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from .derive import DerivedCell, DerivedGate, cpp

HERE = Path(__file__).parent
FUNCTIONS, STATE, CELLS = HERE / "functions.cuh", HERE / "state.cuh", HERE / "cells.cuh"
"""What kernels of all C++ engines begin with; what is derived comes between."""


class CompilerError(RuntimeError):
    """There is no compiler, or it does not take the kernel."""


def joined(parts: Iterable[Path | str]) -> str:
    """A source of files and of text in between."""
    return "\n".join(_read(part) if isinstance(part, Path) else part for part in parts)


@lru_cache
def _read(path: Path) -> str:
    return path.read_text("utf-8")


def cell_sources(derived: DerivedGate | DerivedCell) -> tuple[Path | str, ...]:
    """A cell in C++, and what it is made of: by hand around a derived gate, or all of it derived."""
    if isinstance(derived, DerivedCell):
        return FUNCTIONS, cpp.counts(derived), STATE, cpp.cell_source(derived)
    return FUNCTIONS, cpp.source(derived), STATE, CELLS
