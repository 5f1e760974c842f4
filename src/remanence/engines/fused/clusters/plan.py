"""How a task is cut into clusters. A table, never a timing: results must not depend on the machine's mood."""

from __future__ import annotations

from dataclasses import dataclass

UNITS = 32
"""Of a program."""
LARGEST = {1: 16, 2: 8}
"""Programs of a cluster, by the parts of a factor: as much of the matrix as fits into registers."""
DEPTH = 4
"""Steps that are fetched ahead, see kernels.cuh."""
BLOCKS = 4
"""Blocks of the recurrent matrix that there is room for."""


@dataclass(frozen=True)
class Plan:
    """Sizes of one launch, see kernels.cuh."""

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
    cluster = -(-units // UNITS)
    tiles = 1
    while tiles < 2 and replicas * -(-rows // (8 * tiles)) * cluster > processors:
        tiles *= 2
    return Plan(cluster, tiles)


def forward_shared(plan: Plan, parts: int, fetched: int) -> int:
    """Bytes of shared memory of a program of the forward pass, see forward.cu."""
    sent = parts * plan.cluster * 8 * 64 * plan.tiles
    return 128 + 2 * sent + _ring(plan, fetched)


def backward_shared(plan: Plan, parts: int, fetched: int) -> int:
    """Bytes of shared memory of a program of the backward pass, see backward.cu."""
    tile = plan.cluster * UNITS * 8 * 4 + parts * UNITS * 8 * 8 + 8 * 8 * 4
    return 128 + 2 * tile * plan.tiles + _ring(plan, fetched)


def _ring(plan: Plan, fetched: int) -> int:
    return DEPTH * fetched * plan.tiles * 256 * 4
