"""Compiles kernels ahead of time, so that the first request to a server does not wait for a compiler."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from .. import gates
from ..cells import Cell
from .base import Engine, EngineTask
from .check import checked
from .comparison import run, undisturbed
from .machine import device_named, devices, threads
from .samples import BUILT, UNGATED, Sizes, cells_with, every_cell, make_task
from .self_check import self_check

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Warmed(NamedTuple):
    """The result for one engine on one device."""

    device: str
    engine: str
    layers: int
    """Number of kinds of layers with compiled kernels: cell, gate, with and without dt, dtype, units."""
    reason: str | None
    """Why the engine must not be used, see `self_check`; None if it agrees with the loop."""


def warm(
    device: str | torch.device | None = None,
    engines: Sequence[str] | None = None,
    gate: str | gates.Gate | None = None,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    units: Sequence[int] = (128,),
    batch: int = 32,
    inputs: int = 32,
) -> Iterator[Warmed]:
    """Compile kernels and check engines; both are cached on disk.

    Covers training and inference, one direction, and sequences of equal length. GPU kernels depend on the sizes of a
    layer, CPU kernels do not.

    Args:
        device: Device to compile for; by default the CPU and, if there is one, the current CUDA device.
        engines: Names of the engines; by default all that compile kernels.
        gate: The only gate, by name or as an object; by default all registered gates.
        dtypes: Dtypes of inputs and weights.
        units: Hidden sizes.
        batch: Batch size.
        inputs: Input size.
    """
    cells = list((*every_cell(), *BUILT, *UNGATED) if gate is None else cells_with(gates.gate_named(gate)))
    for place in devices() if device is None else [device_named(device)]:
        for engine in checked(engines):
            if hasattr(engine, "made_of"):
                tasks = _tasks(engine, cells, dtypes, [Sizes(3, batch, inputs, each) for each in units], place)
                if tasks:
                    _compile(engine, tasks, place)
                    yield Warmed(str(place), engine.name, len(tasks), self_check(engine, place))


def _tasks(
    engine: Engine,
    cells: Sequence[Cell],
    dtypes: Sequence[torch.dtype],
    sizes: Sequence[Sizes],
    device: torch.device,
) -> list[EngineTask]:
    """Tasks, one for every kind of layer that the engine can run."""
    found = []
    for cell in cells:
        for irregular in (False, True) if cell.takes_dt else (False,):
            found += [make_task(cell, size, d, device, irregular=irregular) for d in dtypes for size in sizes]
    with _pool(device) as pool:  # an engine may have to compile to find out
        refused = list(pool.map(engine.refuses, found))
    return [task for task, reason in zip(found, refused, strict=True) if reason is None]


def _compile(engine: Engine, tasks: Sequence[EngineTask], device: torch.device) -> None:
    def both(task: EngineTask) -> None:
        with undisturbed(device):
            run(engine, task, task.inputs.dtype)
            with torch.no_grad():
                engine.run(task)

    with _pool(device) as pool:
        list(pool.map(both, tasks))


def _pool(device: torch.device) -> ThreadPoolExecutor:
    return threads(device) if device.type == "cuda" else ThreadPoolExecutor(os.cpu_count())
