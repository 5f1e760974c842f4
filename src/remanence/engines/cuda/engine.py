"""Which tasks clusters of thread blocks run."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

import torch

from ..base import Result, Task
from ..kernels.contract import Backend, register
from ..kernels.machine_code import CompilerError
from ..kernels.run import run_with, unsuited
from ..machine import tf32_in_recurrent_layers
from . import plan
from .compiler import compiled
from .driver import DriverError, Kernel, architecture, driver

name = "cuda"
SIDE_BY_SIDE = True

GENERATIONS = (9, 10)
"""Major compute capabilities of the chips with clusters and enough shared memory."""


def refuses(task: Task) -> str | None:
    """Why it cannot run the task."""
    device = task.inputs.device
    if device.type != "cuda":
        return f"it runs on CUDA devices, and the input is on {device.type}"
    reason = unsuited(task) or lacks(device)
    if reason is not None:
        return reason
    largest = largest_cluster(device)
    if task.width > plan.most_units(2, largest):  # else there is room; to ask for the precision takes the host long
        parts = plan.parts(task.inputs.dtype, tf32_in_recurrent_layers())
        most = plan.most_units(parts, largest)
        if task.width > most:
            exact = " in full float32" if parts > 1 else ""
            return f"it has room for {most} units{exact}, and there are {task.width}"
    blocks = task.weights["weight_hh"].shape[0] // task.width
    if blocks > plan.BLOCKS:
        return f"it has room for {plan.BLOCKS} blocks of pre-activations, and the cell has {blocks}"
    return None


@lru_cache
def _lacks(device: torch.device) -> str | None:
    if torch.version.cuda is None:
        return "it runs on NVIDIA's devices alone"
    capability = torch.cuda.get_device_capability(device)
    if capability[0] not in GENERATIONS:
        asked = " or ".join(f"{major}.x" for major in GENERATIONS)
        return f"it needs a chip of compute capability {asked}, and {device} has {'.'.join(map(str, capability))}"
    try:
        _nothing(architecture(device))
        driver()
    except (CompilerError, OSError) as error:
        return f"its kernels cannot be compiled: {error}"
    return None


@lru_cache
def _nothing(architecture: str) -> bytes:
    """Machine code that does nothing: that there is some shows a compiler that knows the chip."""
    return compiled('extern "C" __global__ void nothing() {}', [f"--gpu-architecture={architecture}"])


@lru_cache
def _largest_cluster(device: torch.device) -> int:
    code = _nothing(architecture(device))
    for cluster in range(plan.LARGEST, 1, -1):
        with suppress(DriverError):
            if Kernel(code, "nothing", "", 256, cluster, plan.SHARED, device).at_once():
                return cluster
    return 1


def lacks(device: torch.device) -> str | None:
    """What the device or the installation lacks."""
    return _lacks(device)


def largest_cluster(device: torch.device) -> int:
    """How many programs the device lets write into each other's memory: fewer on a part of a chip."""
    return _largest_cluster(device)


for known in (lacks, largest_cluster):
    setattr(known, "_dynamo_marked_constant", True)  # noqa: B010  what `assume_constant_result` sets, without its import


def run(task: Task) -> Result:
    """Run a task, or several side by side, in one launch."""
    return run_with(name, task)


def _kernels() -> Backend:
    from . import recurrence

    return recurrence


register(name, _kernels)
