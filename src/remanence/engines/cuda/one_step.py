"""A single step of a few sequences on a GPU, see `kernels.one_step`."""

from __future__ import annotations

import torch

from ..kernels.bound import Start, StepSizes
from ..kernels.contract import Derivation, Kind
from ..kernels.machine_code import cell_sources
from ..kernels.one_step import Maker, constants_of, count_addresses
from .compiler import machine_code
from .device import lacks
from .driver import Kernel, architecture

WARPS = 4
"""Warps per thread block; a warp computes one unit."""


def make(kind: Kind, known: Derivation, has_dt: bool, device: torch.device) -> Start:
    """Compile and load the step of a kind."""
    constants = constants_of(kind, known, has_dt)
    cell = cell_sources(kind.derived(has_dt))
    code = machine_code("one_step", constants | {"WARPS": WARPS}, architecture(device), cell)
    kernel = Kernel(code, "one_step", f"4if{count_addresses(kind, known)}P", 32 * WARPS, 1, 0, device)
    beta = kind.beta

    def start(shape: StepSizes, addresses: list[int]) -> None:
        kernel.start(-(-shape.units // WARPS), *shape, beta, *addresses)

    return start


maker = Maker(lacks, make)
