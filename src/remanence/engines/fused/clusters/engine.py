"""Which tasks clusters run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from ...base import Result, Task
from ...machine import tf32_in_recurrent_layers
from .. import engine as fused
from . import plan
from .compiler import CompilerError, library
from .driver import driver

name = "cuda"

CAPABILITY = (9, 0)
"""Of the first chips with clusters."""


def refuses(task: Task) -> str | None:
    """Why it cannot run the task."""
    device = task.inputs.device
    if device.type != "cuda":
        return f"it runs on CUDA devices, and the input is on {device.type}"
    reason = fused.unsuited(task) or lacks(device)
    if reason is not None:
        return reason
    full = task.inputs.dtype == torch.float32 and not tf32_in_recurrent_layers()
    most = 4 * plan.SLICE[2 if full else 1]
    if task.width > most:
        kind = "full float32" if full else "this precision"
        return f"it keeps the recurrent matrix on chip, in {kind} up to {most} units, and there are {task.width}"
    rows = task.weights["weight_hh"].shape[0] // task.width
    if rows > plan.BLOCKS:
        return f"it has room for {plan.BLOCKS} blocks of pre-activations, and the cell has {rows}"
    return None


@lru_cache
def lacks(device: torch.device) -> str | None:
    """What the device or the installation lacks."""
    if torch.version.cuda is None:
        return "it runs on NVIDIA's devices alone"
    capability = torch.cuda.get_device_capability(device)
    if capability < CAPABILITY:
        asked, found = (".".join(map(str, version)) for version in (CAPABILITY, capability))
        return f"it needs a chip of compute capability {asked}, and {device} has {found}"
    try:
        library()
        driver()
    except (CompilerError, OSError) as error:
        return f"its kernels cannot be compiled: {error}"
    return None


def run(task: Task) -> Result:
    """Run a task in one launch."""
    return run_together([task])[0]


def run_together(tasks: Sequence[Task]) -> list[Result]:
    """Run tasks of one kind and shape, each with weights of its own, side by side in one launch."""
    return fused.run_with(name, tasks)
