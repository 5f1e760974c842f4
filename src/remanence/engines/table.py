"""All engines by name."""

from __future__ import annotations

from typing import cast

from ..names import lookup
from . import cpp, cpu, cuda, loop, triton
from . import torch as torch_layers
from .base import Engine

KNOWN: dict[str, Engine] = {
    "cuda": cast(Engine, cuda),
    "triton": cast(Engine, triton),
    "c++": cast(Engine, cpp),
    "cpu": cast(Engine, cpu),
    "torch": cast(Engine, torch_layers),
    "loop": cast(Engine, loop),
}
"""Fastest first, the order in which "auto" tries them. The loop is last and runs everything."""


def check_name(name: str) -> str:
    """The name, if it is "auto" or the name of an engine.

    Args:
        name: The name.
    """
    if name != "auto":
        lookup("engine", name, KNOWN, also=("auto",))
    return name


def runs_side_by_side(engine: Engine) -> bool:
    """Whether an engine runs several tasks in one launch.

    Args:
        engine: The engine.
    """
    return getattr(engine, "SIDE_BY_SIDE", False)
