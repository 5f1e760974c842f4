"""The cuda engine: which tasks it runs."""

from __future__ import annotations

from typing import cast

import torch

from ...cells import PointwiseCell
from ..base import EngineResult, EngineTask
from ..kernels.contract import Backend, derivation, register
from ..kernels.run import run_with, unsuited
from ..machine import described, tf32_in_recurrent_layers
from . import plan
from .compiler import version
from .device import lacks, largest_cluster

name = "cuda"
SIDE_BY_SIDE = True


def refuses(task: EngineTask) -> str | None:
    """Why it cannot run the task."""
    device = task.inputs.device
    if device.type != "cuda":
        return f"it runs on CUDA devices, and the input is on {device.type}"
    reason = unsuited(task) or lacks(device)
    if reason is not None:
        return reason
    largest = largest_cluster(device)
    blocks = task.weights["weight_hh"].shape[0] // task.width
    if blocks > plan.BLOCKS:
        return f"it supports at most {plan.BLOCKS} blocks of pre-activations, and the cell has {blocks}"
    known = derivation(cast(PointwiseCell, task.cell))
    carried = len(known.single)
    if carried > plan.CARRIED:
        return f"it supports at most {plan.CARRIED} carried values, and there are {carried}"
    pages = plan.pages_of(carried, known.split >= 0)
    if task.width > plan.most_units(2, largest, blocks, pages):  # else it fits; querying the precision is slow
        parts = plan.parts(task.inputs.dtype, tf32_in_recurrent_layers())
        most = plan.most_units(parts, largest, blocks, pages)
        if task.width > most:
            exact = " in full float32" if parts > 1 else ""
            of = f" in {blocks} blocks" if blocks > 4 else ""
            also = f" with {carried} carried values" if pages > plan.PAGES else ""
            return f"it supports at most {most} units{of}{also}{exact}, and there are {task.width}"
    return None


def run(task: EngineTask) -> EngineResult:
    """Run a task, or several stacked tasks, in one launch."""
    return run_with(name, task)


def made_of(device: torch.device) -> tuple[str, ...]:
    """What its results depend on besides its source code."""
    return (*described(device), *map(str, version()))


def _kernels() -> Backend:
    from . import recurrence

    return recurrence


register(name, _kernels)
