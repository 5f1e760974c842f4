"""The engines by name."""

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
"""Fastest first: what "auto" tries in turn. The loop is last and refuses nothing."""


def check_name(name: str) -> str:
    """The name, if it is "auto" or an engine's."""
    if name != "auto":
        lookup("engine", name, KNOWN, also=("auto",))
    return name


def runs_side_by_side(engine: Engine) -> bool:
    """Whether it runs several tasks in one launch."""
    return getattr(engine, "SIDE_BY_SIDE", False)
