"""How a task is cut into clusters. A table, never a timing: results must not depend on the machine's mood."""

from __future__ import annotations

from dataclasses import dataclass

import torch

REGISTERS = 128
"""Registers of a thread that a slice of the matrix may take: as many as there are warps in a cluster times parts."""
LARGEST = 16
"""Programs of a cluster, on a whole chip."""
BLOCKS = 4
"""Blocks of the recurrent matrix that there is room for."""
DEPTH = 4
"""Steps that are fetched ahead, see kernels.cuh."""


@dataclass(frozen=True)
class Plan:
    """Sizes of one launch, see kernels.cuh."""

    warps: int
    """Of a program, each with four units."""
    cluster: int
    """Programs."""
    tiles: int
    """Tiles of eight rows of a cluster."""
    together: int = 1
    """Programs that are to fit on a processor, for which the compiler saves registers."""

    def groups(self, rows: int, replicas: int) -> int:
        """Clusters."""
        return replicas * -(-rows // (8 * self.tiles))


def parts(dtype: torch.dtype, tf32: bool) -> int:
    """How many float16 numbers stand for a factor of a product: full float32 takes two."""
    return 2 if dtype == torch.float32 and not tf32 else 1


def most_units(parts: int) -> int:
    """Of a layer."""
    return 4 * REGISTERS // parts


def make(units: int, rows: int, replicas: int, parts: int, processors: int, largest: int) -> Plan:
    """Sizes for a task: all clusters at once where there is room, and as few units in a program as that allows.

    Args:
        units: of the layer.
        rows: sequences of one replica.
        replicas: independent models in the launch.
        parts: of a factor.
        processors: of the chip.
        largest: how many programs of a cluster the chip takes, at least a 32nd of the units.
    """
    groups = replicas * -(-rows // 8)
    small = -(-units // 16)
    if small <= largest and groups * small <= processors:
        return Plan(4, small, 1)
    cluster = -(-units // 32)
    slice_registers = 8 * cluster * parts
    programs = groups * cluster
    if slice_registers > 64:
        # Clusters are of neighbouring processors: not all of the chip can be used.
        return Plan(8, cluster, 1 if programs <= processors - cluster else 2)
    most = 3 if slice_registers <= 32 else 2
    room = processors - processors // 16
    return Plan(8, cluster, 1, min(most, -(-programs // room)))


def forward_shared(plan: Plan, parts: int, given: int, left: int) -> int:
    """Bytes of shared memory of a program of the forward pass, see forward.cu.

    Args:
        plan: sizes of the launch.
        parts: of a factor.
        given: numbers that a unit needs from memory in a step.
        left: numbers that it leaves there.
    """
    return 128 + 2 * parts * plan.cluster * plan.warps * 64 * plan.tiles + _boxes(plan, given, left)


def backward_shared(plan: Plan, parts: int, given: int, left: int) -> int:
    """Bytes of shared memory of a program of the backward pass, see backward.cu; arguments as there."""
    units = 4 * plan.warps
    tile = plan.cluster * units * 8 * 4 + parts * units * 8 * 8 + plan.warps * 8 * 4
    return 128 + 2 * tile * plan.tiles + _boxes(plan, given, left)


def _boxes(plan: Plan, given: int, left: int) -> int:
    rows = 8 * plan.tiles
    page = rows * (4 * plan.warps + 4)
    return 4 * (DEPTH * (given * page + rows) + 2 * left * page)
