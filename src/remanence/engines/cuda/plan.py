"""How a task is cut into clusters. A table, never a timing: results must not depend on the machine's mood."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch

LARGEST = 16
"""Programs of a cluster, on a whole chip."""
BLOCKS = 4
"""Blocks of the recurrent matrix that there is room for."""
CARRIED = 2
"""Values that a gate may carry: boxes of the backward pass have room for so many in layers of every size."""
DEPTH = 4
"""Steps that are fetched ahead, see steps.cuh."""


@dataclass(frozen=True)
class LaunchShape:
    """Sizes of one launch, see kernels.cuh."""

    warps: int
    """Of a program, each with four units if it is not whole."""
    cluster: int
    """Programs."""
    tiles: int
    """Tiles of eight rows of a cluster."""
    together: int = 1
    """Programs that are to fit on a processor, for which the compiler saves registers."""
    whole: bool = False
    """Whether a program has the whole layer, see whole.cuh: each of its warps has eight units, or sixteen."""
    held: int = 0
    """Tiles of the matrix that a thread of a wide layer has in registers, see wide.cuh; in others all are."""
    ahead: int = 0
    """Tiles of the others that it reads before it needs them."""
    streamed: int = 0
    """Tiles that there is no room for on the chip."""

    @property
    def wide(self) -> bool:
        """Whether registers do not hold the matrix."""
        return self.held > 0

    def groups(self, rows: int, replicas: int) -> int:
        """Clusters."""
        return replicas * -(-rows // (8 * self.tiles))


def parts(dtype: torch.dtype, tf32: bool) -> int:
    """How many float16 numbers stand for a factor of a product: full float32 takes two."""
    return 2 if dtype == torch.float32 and not tf32 else 1


MOST_UNITS = 32
"""Of a program whose registers hold its slice of the matrix."""
MOST_UNITS_WIDE = 48
"""Of one that has a shelf for what they do not hold."""
MOST_UNITS_STREAMED = 72
"""Of one that reads the rest in every step."""
NEIGHBOURS = 18
"""Processors of a part of the chip: all programs of a cluster are on one part, and large clusters alone on it."""
SHARED = 224 * 1024
"""Bytes of shared memory that a program may have."""
MOST_UNITS_WHOLE = 128
"""Of one that a program has to itself."""


def most_units(parts: int, largest: int) -> int:
    """Units of a layer that there is room for.

    Args:
        parts: of a factor.
        largest: how many programs of a cluster the chip takes.
    """
    if parts > 1:
        return MOST_UNITS * largest
    return (MOST_UNITS_STREAMED if largest == LARGEST else MOST_UNITS_WIDE) * largest


def shelf(plan: LaunchShape, parts: int) -> int:
    """Bytes of shared memory for the finer parts of a program's slice, where its registers are full."""
    if parts == 1 or plan.cluster * plan.warps <= 64:
        return 0
    return -(-plan.cluster // 4) * plan.warps * 32 * plan.warps * 16


@lru_cache(maxsize=1024)
def make(
    units: int,
    rows: int,
    replicas: int,
    parts: int,
    backward: bool,
    processors: int,
    largest: int,
    countable: bool = True,
) -> LaunchShape:
    """Sizes for a task: all clusters at once where there is room, and as few units in a program as that allows.

    With more to do than fits, it is what was fastest on an H200. Up to 128 units several small programs share a
    processor (up to 64 units in the forward pass alone); with more than twice of what fits a program has the whole
    layer, but for full float32, for which it has no room. Otherwise there are eight warps. Whether a program has the
    whole layer is the same for both passes: what one keeps for the other depends on it.

    Args:
        units: of the layer.
        rows: sequences of one replica.
        replicas: independent models in the launch.
        parts: of a factor.
        backward: whether it is the backward pass.
        processors: of the chip.
        largest: how many programs of a cluster the chip takes, enough for `most_units`.
        countable: whether 32 bits count all vectors of pre-activations, as a program with the whole layer does.
    """
    groups = replicas * -(-rows // 8)
    small = -(-units // 16)
    room = processors - processors // 16  # clusters are of neighbouring processors: not all of the chip can be used
    if units > MOST_UNITS_WIDE * largest:
        return make_streamed(units, backward)
    if units > MOST_UNITS * largest:
        return make_wide(units, groups, backward, processors)
    if small <= largest and groups * small <= processors:
        return LaunchShape(4, small, 1)
    if units <= MOST_UNITS_WHOLE and parts == 1 and countable and groups * small > 2 * processors:
        return make_whole(units, backward)
    if small <= min(8, largest) and (units > 64 or not backward):
        return LaunchShape(4, small, 1, min(-(-groups * small // room), 3))
    cluster = -(-units // 32)
    programs = groups * cluster
    one = LaunchShape(8, cluster, 1)
    if 8 * cluster * parts > 64:  # a shelf leaves no room for a second tile
        return one if programs <= processors - cluster or shelf(one, parts) else LaunchShape(8, cluster, 2)
    return LaunchShape(8, cluster, 1, min(2, -(-programs // room)))


def make_whole(units: int, backward: bool) -> LaunchShape:
    """Sizes for a task where every program has the whole layer; a thread has one unit, or two in the backward pass."""
    warps = -(-units // 16) * (1 if backward else 2)
    return LaunchShape(warps, 1, 1, (8 if backward else 16) // warps, whole=True)


def at_once(processors: int) -> int:
    """How many large clusters run at the same time."""
    return max(1, processors // NEIGHBOURS)


def make_wide(units: int, groups: int, backward: bool, processors: int) -> LaunchShape:
    """Sizes for a task of more units than registers hold, see wide.cuh.

    Forward, with more tiles of eight rows than clusters that run at once, a cluster has two or three.

    Args:
        units: of the layer.
        groups: tiles of eight rows.
        backward: whether it is the backward pass.
        processors: of the chip.
    """
    warps, cluster = MOST_UNITS_WIDE // 4, -(-units // MOST_UNITS_WIDE)
    if backward:
        return LaunchShape(warps, cluster, 1, held=20, ahead=4)
    for tiles in range(min(3, -(-groups // at_once(processors))), 1, -1):
        sizes = LaunchShape(warps, cluster, tiles, held=20, ahead=6)
        if wide_forward_shared(sizes) <= SHARED:
            return sizes
    return LaunchShape(warps, cluster, 1, held=22, ahead=8)


def make_streamed(units: int, backward: bool) -> LaunchShape:
    """Sizes for a task of more units than the chip holds: as much of the matrix in the cellar as has no room."""
    warps = -(-units // (4 * LARGEST))
    sizes = LaunchShape(warps, LARGEST, 1, held=max(1, 60 - 4 * warps), ahead=6)
    lacking = (wide_backward_shared(sizes) if backward else wide_forward_shared(sizes)) - SHARED
    return replace(sizes, streamed=max(0, -(-lacking // _tile(sizes))))


def forward_shared(plan: LaunchShape, parts: int, blocks: int, left: int, inputs: int) -> int:
    """Bytes of shared memory of a program of the forward pass, see forward.cu.

    Args:
        plan: sizes of the launch.
        parts: of a factor.
        blocks: of pre-activations.
        left: numbers that a unit leaves in memory in a step.
        inputs: numbers that a row needs, if they are narrow.
    """
    row = 8 * -(-inputs // 8)
    hidden = 2 * parts * plan.cluster * plan.warps * 64 * plan.tiles
    return 128 + shelf(plan, parts) + hidden + _boxes(plan, 0 if inputs else blocks, left, row)


def backward_shared(plan: LaunchShape, parts: int, given: int, left: int, inputs: int) -> int:
    """Bytes of shared memory of a program of the backward pass, see backward.cu.

    Args:
        plan: sizes of the launch.
        parts: of a factor.
        given: numbers that a unit needs from memory in a step.
        left: numbers that it leaves there.
        inputs: numbers that a row needs, if they are narrow.
    """
    row = 8 * -(-inputs // 8) + 4 if inputs else 0
    units = 4 * plan.warps
    tile = plan.cluster * units * 8 * 4 + parts * units * 8 * 8 + plan.warps * 8 * 4
    return 128 + shelf(plan, parts) + 2 * tile * plan.tiles + _boxes(plan, given, left, row)


def _boxes(plan: LaunchShape, given: int, left: int, row: int) -> int:
    rows = 8 * plan.tiles
    page = rows * (4 * plan.warps + 4)
    return 4 * (DEPTH * (given * page + rows * row + rows) + 2 * left * page)


def wide_forward_shared(plan: LaunchShape) -> int:
    """Bytes of shared memory of a program of a wide layer, forward, see wide_forward.cu."""
    tiles = plan.cluster * plan.warps // 4
    return 128 + 2 * 64 * plan.cluster * plan.warps * plan.tiles + _shelved(plan, tiles)


def wide_backward_shared(plan: LaunchShape) -> int:
    """Bytes of shared memory of a program of a wide layer, backward, see wide_backward.cu."""
    units = 4 * plan.warps
    tiles = plan.warps * -(-plan.cluster // 4)
    return 128 + 2 * (plan.cluster * units * 8 * 4 + units * 8 * 8 + plan.warps * 8 * 4) + _shelved(plan, tiles)


def _shelved(plan: LaunchShape, tiles: int) -> int:
    return max(0, tiles - plan.held - plan.streamed) * _tile(plan)


def _tile(plan: LaunchShape) -> int:
    """Bytes of a tile of all threads."""
    return 32 * plan.warps * 16


def whole_forward_shared(units: int, size: int, blocks: int, left: int, inputs: int) -> int:
    """Bytes of shared memory of a program that has a whole layer, forward, see whole_forward.cu.

    Args:
        units: of the layer, padded.
        size: of a number.
        blocks: of pre-activations.
        left: numbers that a unit leaves in memory in a step.
        inputs: numbers that a row needs, if they are narrow.
    """
    eights, pairs = -(-inputs // 8), -(-blocks // 2)
    inbox = (256 * eights if inputs else _rows(blocks * units * size)) + 32
    outbox = _rows(4 * units) if left == 1 else _rows(4 * blocks * units) + (left - blocks) * _rows(4 * units)
    return 32 * units + 16 * pairs * units + 64 * eights * pairs * units + DEPTH * inbox + 2 * outbox


def whole_backward_shared(
    units: int, size: int, blocks: int, states: int, others: int, inputs: int, d_inputs: bool
) -> int:
    """Bytes of shared memory of a program that has a whole layer, backward, see whole_backward.cu.

    Args:
        units: of the layer, padded.
        size: of a number.
        blocks: of pre-activations.
        states: pages that a step needs in float32.
        others: pages of single blocks that it needs otherwise.
        inputs: numbers that a row needs, if they are narrow.
        d_inputs: whether it computes derivatives by them.
    """
    row = 8 * (32 * -(-inputs // 8) + 16) if inputs else 0
    inbox = _rows(blocks * units * size) + states * _rows(4 * units) + others * _rows(units * size) + row + 32
    ledger = 32 * units * -(-inputs // 8) * blocks
    by_inputs = 64 * units * (-(-blocks // 2) + 1) if d_inputs else 0
    return units // 16 * (1024 * -(-blocks // 2) + 64) + ledger + by_inputs + DEPTH * inbox


def _rows(size: int) -> int:
    """Bytes of eight rows in a box."""
    return 8 * (size + 16)
