"""The benchmark plan: sizes, layers and precision."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .. import engines
from ..engines.machine import device_named, devices
from ..names import lookup
from .layers import KNOWN as LAYERS
from .layers import QUOTED


@dataclass(frozen=True)
class Shape:
    """T steps, B sequences, I inputs, H units of one layer."""

    name: str
    steps: int
    batch: int
    inputs: int
    units: int

    @property
    def sizes(self) -> str:
        """As in `T220 B128 H128`."""
        return f"T{self.steps} B{self.batch} H{self.units}"


CUDA = (
    Shape("copy-200", 220, 128, 10, 128),
    Shape("copy-1000", 1020, 128, 10, 128),
    Shape("adding-5000", 5000, 50, 2, 128),
    Shape("pixel-256", 784, 100, 1, 256),
    Shape("pixel-512", 784, 100, 1, 512),
    Shape("char-ptb", 150, 128, 20, 716),
    Shape("word-ptb", 70, 20, 400, 1150),
)
CPU = (
    Shape("cpu-small-batch", 200, 32, 10, 128),
    Shape("cpu-128", 200, 128, 10, 128),
    Shape("cpu-256", 200, 100, 10, 256),
)
QUICK = Shape("quick", 50, 32, 10, 64)
KNOWN = {shape.name: shape for shape in (*CUDA, *CPU, QUICK)}

FEW_STEPS = 100
"""Longest sequence for which the loop engine is measured by default: on longer ones it would dominate the run."""

PRECISIONS = ("tf32", "full", "bf16")
"""float32 with TF32 matmuls, float32 with full-precision matmuls, bfloat16."""


@dataclass(frozen=True)
class BenchPlan:
    """Everything that a run measures."""

    device: torch.device
    shapes: tuple[Shape, ...]
    layers: tuple[str, ...]
    engines: tuple[str, ...] | None
    """None means "auto" and every other engine that can run."""
    precision: str
    budget: float
    """Time limit in seconds; measurements beyond it are skipped."""
    growth: Shape | None
    """Base shape for measuring growth in T, B and H, and replicas; None if it is not among the chosen shapes."""
    apart: bool = False
    """Whether every layer is measured in a process of its own, see `apart`."""

    @property
    def shown(self) -> tuple[str, ...]:
        """Representative layers for sections that do not measure all: "fast" and "power_law", or else the first one."""
        return tuple(name for name in ("fast", "power_law") if name in self.layers) or self.layers[:1]

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.precision == "bf16" else torch.float32


def plan(
    device: str | torch.device | None = None,
    shapes: Sequence[str] = (),
    layers: Sequence[str] = (),
    engine_names: Sequence[str] = (),
    precision: str | None = None,
    quick: bool = False,
    budget: float | None = None,
    apart: bool = False,
) -> BenchPlan:
    """Build a plan from user input. Omitted arguments have defaults that depend on the device.

    Args:
        device: cpu, cuda or cuda:N. Default: CUDA if available.
        shapes: Names of shapes, or sizes such as `T220-B128-H128` or `T220-B128-I10-H128`.
        layers: Names of gates, "gru", "janet", ...
        engine_names: Names of engines, or "auto".
        precision: "tf32", "full" or "bf16".
        quick: Whether to measure only one small shape, in half a minute.
        budget: Time limit in seconds.
        apart: Whether every layer is measured in a process of its own; only on a CPU, and not if `quick`. A script that
            asks for it needs the guard `if __name__ == "__main__":`, because the processes import it.
    """
    place = devices()[-1] if device is None else device_named(device)
    cuda = place.type == "cuda"
    if precision is None:
        precision = "tf32" if cuda else "full"
    if precision not in PRECISIONS:
        raise ValueError(f"expected precision to be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision == "tf32" and not cuda:
        raise ValueError("expected precision to be full or bf16 on a CPU, got 'tf32', which needs a CUDA device")
    if budget is None:
        budget = 18.0 if quick else 200.0 if cuda else 220.0
    if not 0 < budget < float("inf"):
        raise ValueError(f"expected budget to be a positive number of seconds, got {budget}")
    for name in layers:
        lookup("gate", name, LAYERS)
    for name in engine_names:
        engines.check_name(name)
    chosen = tuple(dict.fromkeys(shape_named(name) for name in shapes))
    base = QUICK if quick else KNOWN["copy-200" if cuda else "cpu-small-batch"]
    return BenchPlan(
        device=place,
        shapes=chosen or ((QUICK,) if quick else CUDA if cuda else CPU),
        layers=tuple(dict.fromkeys(layers)) or tuple(name for name in LAYERS if name not in QUOTED),
        engines=tuple(dict.fromkeys(engine_names)) or None,
        precision=precision,
        budget=budget,
        growth=base if quick or not chosen or base in chosen else None,
        apart=apart and not (cuda or quick),
    )


SIZES = re.compile(r"T([1-9]\d*)-B([1-9]\d*)(?:-I([1-9]\d*))?-H([1-9]\d*)", re.IGNORECASE)


def shape_named(name: str) -> Shape:
    """A known shape by name, or the shape that a name such as `T220-B128-H128` spells out."""
    spelled = SIZES.fullmatch(name)
    if spelled is None:
        return lookup("shape", name, KNOWN, also=("sizes such as T220-B128-H128",))
    steps, batch, inputs, units = (int(size or 10) for size in spelled.groups())
    return Shape(name.upper(), steps, batch, inputs, units)
