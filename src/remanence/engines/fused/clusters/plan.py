"""How a task is cut into clusters. A table, never a timing: results must not depend on the machine's mood."""

from __future__ import annotations

from dataclasses import dataclass

SLICE = {1: 128, 2: 64}
"""Warps of a cluster, by the parts of a factor, for whose slices of the matrix there are registers. Each has four units."""
LARGEST = 16
"""Programs of a cluster."""
DEPTH = 4
"""Steps that are fetched ahead, see kernels.cuh."""
BLOCKS = 4
"""Blocks of the recurrent matrix that there is room for."""


@dataclass(frozen=True)
class Plan:
    """Sizes of one launch, see kernels.cuh."""

    warps: int
    """Of a program, each with four units."""
    cluster: int
    """Programs."""
    tiles: int
    """Tiles of eight rows of a cluster."""

    def groups(self, rows: int, replicas: int) -> int:
        """Clusters."""
        return replicas * -(-rows // (8 * self.tiles))


def make(units: int, rows: int, replicas: int, parts: int, processors: int) -> Plan:
    """Sizes for a task.

    Args:
        units: of the layer.
        rows: sequences of one replica.
        replicas: independent models in the launch.
        parts: of a factor.
        processors: of the chip.
    """
    groups = replicas * -(-rows // 8)
    warps = 4 if units <= 4 * 4 * LARGEST and groups * -(-units // 16) <= processors else 8
    cluster = -(-units // (4 * warps))
    tiles = 1 if groups * cluster <= processors else 2
    return Plan(warps, cluster, tiles)


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
