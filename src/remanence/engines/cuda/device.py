"""Checks whether a CUDA device and the installation support the kernels."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

import torch

from ..kernels.machine_code import CompilerError
from . import plan
from .compiler import code_of
from .driver import DriverError, Kernel, architecture, driver

GENERATIONS = (9, 10)
"""Major compute capabilities of GPUs with clusters and enough shared memory."""


@lru_cache
def _lacks(device: torch.device) -> str | None:
    if torch.version.cuda is None:
        return "it runs on NVIDIA GPUs only"
    capability = torch.cuda.get_device_capability(device)
    if capability[0] not in GENERATIONS:
        asked = " or ".join(f"{major}.x" for major in GENERATIONS)
        return f"it needs a GPU of compute capability {asked}, and {device} has {'.'.join(map(str, capability))}"
    try:
        _nothing(architecture(device))
        driver()
    except (CompilerError, OSError) as error:
        return f"its kernels cannot be compiled: {error}"
    return None


@lru_cache
def _nothing(architecture: str) -> bytes:
    """An empty kernel; compiling it shows whether the compiler supports the GPU."""
    return code_of('extern "C" __global__ void nothing() {}', [f"--gpu-architecture={architecture}"])


@lru_cache
def _largest_cluster(device: torch.device) -> int:
    code = _nothing(architecture(device))
    for cluster in range(plan.LARGEST, 1, -1):
        with suppress(DriverError):
            if Kernel(code, "nothing", "", 256, cluster, plan.SHARED, device).at_once():
                return cluster
    return 1


def lacks(device: torch.device) -> str | None:
    """What the device or the installation lacks, as the end of a sentence; None if nothing."""
    return _lacks(device)


def largest_cluster(device: torch.device) -> int:
    """Largest cluster that the device supports, in thread blocks: smaller on a partition of a GPU (MIG)."""
    return _largest_cluster(device)


for known in (lacks, largest_cluster):
    setattr(known, "_dynamo_marked_constant", True)  # noqa: B010  like `assume_constant_result`, without the import
