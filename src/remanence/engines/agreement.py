"""That an engine agrees with the loop on this machine, kept on disk: another process need not look again.

Agreement alone is kept. An engine that disagrees is looked at again in every process: a full disk or a broken driver
passes. What is kept holds for the device, driver, compiler, torch and source that it was found with.
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
"""Whose source decides what engines compute."""
SUFFIXES = frozenset({".py", ".cpp", ".hpp", ".cu", ".cuh"})


def is_known(engine: Engine, device: torch.device, precision: str) -> bool:
    """Whether the engine agreed with the loop in this precision, on a device like this, as everything is now."""
    name = _name(engine, device, precision)
    return name is not None and cache.find(name) is not None


def note(engine: Engine, device: torch.device, precision: str) -> None:
    """Keep that it did, where it can be kept."""
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
    """A digest of all source that results depend on."""
    found = hashlib.sha256()
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                found.update(f"{path.relative_to(PACKAGE)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()
