"""Kernels compiled before they are needed, for a machine that is to answer at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from .. import gates
from ..cells import Cell
from .base import Engine, EngineTask
from .check import BUILT, UNGATED, Sizes, cells_with, checked, every_cell, make_task, run, self_check, undisturbed
from .machine import device_named, devices, threads

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Warmed(NamedTuple):
    """An engine on a device."""

    device: str
    engine: str
    layers: int
    """How many kinds of layers it has kernels for: cell, gate, with and without dt, dtype, units."""
    reason: str | None
    """Why it is not to be trusted, see `self_check`."""


def warm(
    device: str | torch.device | None = None,
    engines: Sequence[str] | None = None,
    gate: str | gates.Gate | None = None,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    units: Sequence[int] = (128,),
    batch: int = 32,
    inputs: int = 32,
) -> Iterator[Warmed]:
    """Compile kernels and check engines, all of which is kept on disk.

    Training and inference, one direction, sequences of one length. Kernels for GPUs depend on the sizes of a layer,
    those for CPUs do not.

    Args:
        device: where; by default the CPU and, where there is one, the CUDA device.
        engines: names of those to use, if not all that compile.
        gate: the only gate, by its name or as an object; by default all that have a name.
        dtypes: of inputs and weights.
        units: sizes of layers.
        batch: sequences at a time.
        inputs: width of the inputs.
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
    """What stands for layers that the engine can run."""
    found = []
    for cell in cells:
        for irregular in (False, True) if cell.takes_dt else (False,):
            found += [make_task(cell, size, d, device, irregular=irregular) for d in dtypes for size in sizes]
    with _pool(device) as pool:  # an engine may have to compile to know
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
