"""Cached results of self-checks: once an engine agrees with the loop on this machine, other processes skip the check.

Only agreement is cached. An engine that disagrees is checked again in every process, because the cause (a full disk, a
broken driver) may be temporary. A cached result is valid for one combination of device, driver, compiler, torch version
and source code.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import torch

from .base import Engine
from .kernels import cache
from .kernels.machine_code import CompilerError

PACKAGE = Path(__file__).parents[1]
FOLDERS = ("engines", "cells", "gates")
"""Packages whose source determines the results of engines."""
SUFFIXES = frozenset({".py", ".cpp", ".hpp", ".cu", ".cuh"})


def is_known(engine: Engine, device: torch.device, precision: str) -> bool:
    """Whether an earlier check passed with this engine, precision, kind of device, software and source code."""
    name = _name(engine, device, precision)
    return name is not None and cache.find(name) is not None


def note(engine: Engine, device: torch.device, precision: str) -> None:
    """Cache that the check passed, if the cache is writable."""
    name = _name(engine, device, precision)
    if name is not None:
        with suppress(*cache.UNKEPT):
            cache.keep(name, f"engine {engine.name} agrees with the loop engine in {precision}\n".encode())


def _name(engine: Engine, device: torch.device, precision: str) -> str | None:
    made_of = getattr(engine, "made_of", None)
    if made_of is None:
        return None
    with suppress(CompilerError, OSError):
        return cache.file_name([engine.name, precision, torch.__version__, source(), *made_of(device)], "agrees")
    return None


@lru_cache
def source() -> str:
    """A digest of all source code that results depend on."""
    found = hashlib.sha256()
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                found.update(f"{path.relative_to(PACKAGE)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()
