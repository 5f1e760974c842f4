"""Which engine runs a task."""

from __future__ import annotations

from typing import cast

from ..names import lookup
from . import loop
from .base import Engine, Task

KNOWN: dict[str, Engine] = {"loop": cast(Engine, loop)}
"""Engines by name."""

PREFERENCE = ("loop",)
"""Fastest first: what "auto" tries in turn. The loop is last and refuses nothing."""


def check_name(name: str) -> str:
    """The name, if it is "auto" or an engine's."""
    if name != "auto":
        lookup("engine", name, KNOWN, also=("auto",))
    return name


def choose(name: str, task: Task) -> Engine:
    """The engine of that name, or for "auto" the fastest one that can run the task."""
    if name == "auto":
        return next(KNOWN[candidate] for candidate in PREFERENCE if KNOWN[candidate].refuses(task) is None)
    engine = KNOWN[check_name(name)]
    reason = engine.refuses(task)
    if reason is not None:
        raise ValueError(f"expected a task that engine={name!r} can run, but {reason}")
    return engine
