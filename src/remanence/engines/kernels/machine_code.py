"""What machine code is made of; `cache` keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).parent
FUNCTIONS, CELLS = HERE / "functions.cuh", HERE / "cells.cuh"
"""What kernels of all C++ engines begin with; the functions of a gate come between."""


class CompilerError(RuntimeError):
    """There is no compiler, or it does not take the kernel."""


def joined(parts: Iterable[Path | str]) -> str:
    """A source of files and of text in between."""
    return "\n".join(_read(part) if isinstance(part, Path) else part for part in parts)


@lru_cache
def _read(path: Path) -> str:
    return path.read_text("utf-8")
