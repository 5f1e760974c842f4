"""How a task is cut into clusters. A table, never a timing: results must not depend on the machine's mood."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch

LARGEST = 16
"""Programs of a cluster, on a whole chip."""
BLOCKS = 8
"""Blocks of the recurrent matrix that there is room for."""
MOST_INPUTS = 16
"""Widest inputs that these kernels multiply by their matrix."""
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
MOST_ROWS_WHOLE = 5 * 128
"""Rows of its matrix."""


PAGES = 3 + CARRIED
"""Numbers of a unit that a step needs beside those of its blocks, at most: h, cell, what is carried, a part apart."""


@lru_cache(maxsize=256)
def most_units(parts: int, largest: int, blocks: int = 4, pages: int = PAGES) -> int:
    """Units of a layer that there is room for.

    Args:
        parts: of a factor.
        largest: how many programs of a cluster the chip takes.
        blocks: of pre-activations.
        pages: numbers that a step needs beside them.
    """
    if parts > 1 and blocks <= 4:
        return MOST_UNITS * largest
    if parts > 1:
        return MOST_UNITS * max(c for c in range(largest + 1) if _in_registers(MOST_UNITS * c, parts, blocks, pages))
    return (MOST_UNITS_STREAMED if largest == LARGEST else MOST_UNITS_WIDE) * largest


def more(blocks: int) -> int:
    """Blocks after the fourth."""
    return max(0, blocks - 4)


def aside(plan: LaunchShape, parts: int, blocks: int, backward: bool) -> bool:
    """Whether blocks after the fourth are in shared memory: where they fill registers that a step needs.

    With so many in registers the compiler finds room for the rest: fewer with two tiles of rows back, and fewer still
    where two programs share a processor.
    """
    if parts > 1 or blocks <= 4 or plan.wide:
        return False
    if plan.whole:
        return plan.warps > 6 if backward else plan.warps > 8 and blocks % 2 == 1
    tiles = -(-plan.cluster // 4) * 4 if backward else plan.cluster
    most = 64 if plan.together > 1 else 128 if backward and plan.tiles > 1 else 160
    return tiles * plan.warps * blocks // 4 > most


def _finer_on_shelf(plan: LaunchShape, parts: int, blocks: int) -> bool:
    chunks = plan.cluster * plan.warps
    return parts > 1 and (chunks > 64 or chunks * max(4, blocks) > 320)


def _fits(plan: LaunchShape, parts: int, blocks: int, pages: int, backward: bool) -> bool:
    """Whether shared memory has room, whatever the inputs are."""
    if backward:
        return backward_shared(plan, parts, blocks, blocks + pages, blocks + 1, MOST_INPUTS) <= SHARED
    return forward_shared(plan, parts, blocks, blocks + pages, 0) <= SHARED


def _in_registers(units: int, parts: int, blocks: int, pages: int) -> bool:
    """Whether registers and the shelf hold the matrix, in both passes: only so many units are asked about."""
    one = LaunchShape(8, -(-units // MOST_UNITS), 1)
    return blocks <= 4 or all(_fits(one, parts, blocks, pages, backward) for backward in (False, True))


def shelf(plan: LaunchShape, parts: int, blocks: int, backward: bool) -> int:
    """Bytes of shared memory for the part of a program's slice that its registers do not hold.

    That is the finer parts of it, or, if `aside`, blocks after the fourth.
    """
    finer = _finer_on_shelf(plan, parts, blocks)
    others = more(blocks) * -(-plan.warps // 4) if finer or aside(plan, parts, blocks, backward) else 0
    return -(-plan.cluster // 4) * (finer * plan.warps + others) * _tile(plan)


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
    blocks: int = 4,
    pages: int = PAGES,
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
        blocks: of pre-activations.
        pages: numbers of a unit that a step needs beside them.
    """
    groups = replicas * -(-rows // 8)
    small = -(-units // 16)
    room = processors - processors // 16  # clusters are of neighbouring processors: not all of the chip can be used
    if units > MOST_UNITS_WIDE * largest:
        return make_streamed(units, backward, blocks)
    if units > MOST_UNITS * largest or not _in_registers(units, parts, blocks, pages):
        return make_wide(units, groups, backward, processors, blocks)
    if small <= largest and groups * small <= processors:
        return LaunchShape(4, small, 1)
    crowded = groups * small > 2 * processors
    if crowded and countable and parts == 1 and _in_one(units, blocks, pages):
        return make_whole(units, backward)
    if small <= min(8, largest) and (units > 64 or not backward):
        return LaunchShape(4, small, 1, min(-(-groups * small // room), 3))
    cluster = -(-units // 32)
    programs = groups * cluster
    one = LaunchShape(8, cluster, 1)
    if 8 * cluster * parts > 64:  # a shelf leaves no room for a second tile, nor may other blocks
        two = LaunchShape(8, cluster, 2)
        full = _finer_on_shelf(one, parts, blocks) or not _fits(two, parts, blocks, pages, backward)
        return one if programs <= processors - cluster or full else two
    return LaunchShape(8, cluster, 1, min(2, -(-programs // room)))


def make_whole(units: int, backward: bool) -> LaunchShape:
    """Sizes for a task where every program has the whole layer; a thread has one unit, or two in the backward pass."""
    warps = -(-units // 16) * (1 if backward else 2)
    return LaunchShape(warps, 1, 1, (8 if backward else 16) // warps, whole=True)


def _in_one(units: int, blocks: int, pages: int) -> bool:
    """Whether there is room for a whole layer in a program, in both passes."""
    if units > MOST_UNITS_WHOLE or units * blocks > MOST_ROWS_WHOLE:
        return False
    if blocks <= 4:
        return True
    there, back = (aside(make_whole(units, backward), 1, blocks, backward) for backward in (False, True))
    units = 16 * -(-units // 16)
    forward = max(whole_forward_shared(units, 4, blocks, blocks + pages, inputs, there) for inputs in (0, MOST_INPUTS))
    return max(forward, whole_backward_shared(units, 4, blocks, pages - 1, 1, MOST_INPUTS, False, back)) <= SHARED


def at_once(processors: int) -> int:
    """How many large clusters run at the same time."""
    return max(1, processors // NEIGHBOURS)


def make_wide(units: int, groups: int, backward: bool, processors: int, blocks: int = 4) -> LaunchShape:
    """Sizes for a task of more units than registers hold, see wide.cuh.

    Forward, with more tiles of eight rows than clusters that run at once, a cluster has two or three. With more than
    four blocks some of the matrix may have no room.

    Args:
        units: of the layer.
        groups: tiles of eight rows.
        backward: whether it is the backward pass.
        processors: of the chip.
        blocks: of pre-activations.
    """
    warps, cluster = MOST_UNITS_WIDE // 4, -(-units // MOST_UNITS_WIDE)
    if backward:
        return _with_overflow(LaunchShape(warps, cluster, 1, held=20, ahead=4), backward, blocks)
    for tiles in range(min(3, -(-groups // at_once(processors))), 1, -1):
        sizes = LaunchShape(warps, cluster, tiles, held=20, ahead=6)
        if blocks > 4:
            sizes = _with_overflow(replace(sizes, held=22 - 2 * tiles, ahead=4), backward, blocks)
        few = OVERFLOWING * sizes.streamed <= _tiles(sizes, backward, blocks)
        if few and wide_forward_shared(sizes, blocks) <= SHARED:
            return sizes
    return _with_overflow(LaunchShape(warps, cluster, 1, held=22, ahead=8), backward, blocks)


OVERFLOWING = 3
"""One of so many tiles may be streamed so that a cluster has more rows."""


def make_streamed(units: int, backward: bool, blocks: int = 4) -> LaunchShape:
    """Sizes for a task of more units than the chip holds: as much of the matrix in the cellar as has no room."""
    warps = -(-units // (4 * LARGEST))
    return _with_overflow(LaunchShape(warps, LARGEST, 1, held=max(1, 60 - 4 * warps), ahead=6), backward, blocks)


def _with_overflow(sizes: LaunchShape, backward: bool, blocks: int) -> LaunchShape:
    lacking = (wide_backward_shared if backward else wide_forward_shared)(sizes, blocks) - SHARED
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
    return 128 + shelf(plan, parts, blocks, backward=False) + hidden + _boxes(plan, 0 if inputs else blocks, left, row)


def backward_shared(plan: LaunchShape, parts: int, blocks: int, given: int, left: int, inputs: int) -> int:
    """Bytes of shared memory of a program of the backward pass, see backward.cu.

    Args:
        plan: sizes of the launch.
        parts: of a factor.
        blocks: of pre-activations.
        given: numbers that a unit needs from memory in a step.
        left: numbers that it leaves there.
        inputs: numbers that a row needs, if they are narrow.
    """
    row = 8 * -(-inputs // 8) + 4 if inputs else 0
    units = 4 * plan.warps
    tile = plan.cluster * units * 8 * 4 + parts * units * 8 * (8 + 2 * more(blocks)) + plan.warps * 8 * 4
    return 128 + shelf(plan, parts, blocks, backward=True) + 2 * tile * plan.tiles + _boxes(plan, given, left, row)


def _boxes(plan: LaunchShape, given: int, left: int, row: int) -> int:
    rows = 8 * plan.tiles
    page = rows * (4 * plan.warps + 4)
    return 4 * (DEPTH * (given * page + rows * row + rows) + 2 * left * page)


def wide_forward_shared(plan: LaunchShape, blocks: int = 4) -> int:
    """Bytes of shared memory of a program of a wide layer, forward, see wide_forward.cu."""
    return 128 + 2 * 64 * plan.cluster * plan.warps * plan.tiles + _shelved(plan, False, blocks)


def wide_backward_shared(plan: LaunchShape, blocks: int = 4) -> int:
    """Bytes of shared memory of a program of a wide layer, backward, see wide_backward.cu."""
    units = 4 * plan.warps
    warps = 4 * -(-plan.warps // 4) if more(blocks) else plan.warps
    derivatives = units * 8 * 8 + more(blocks) * warps * 8 * 8
    return 128 + 2 * (plan.cluster * units * 8 * 4 + derivatives + warps * 8 * 4) + _shelved(plan, True, blocks)


def _tiles(plan: LaunchShape, backward: bool, blocks: int) -> int:
    """How many a thread of a wide layer has."""
    tiles = plan.cluster * plan.warps // 4
    if not backward:
        return tiles + more(blocks) * -(-tiles // 4)
    return -(-plan.cluster // 4) * (plan.warps + more(blocks) * -(-plan.warps // 4))


def _shelved(plan: LaunchShape, backward: bool, blocks: int) -> int:
    return max(0, _tiles(plan, backward, blocks) - plan.held - plan.streamed) * _tile(plan)


def _tile(plan: LaunchShape) -> int:
    """Bytes of a tile of all threads."""
    return 32 * plan.warps * 16


def whole_forward_shared(units: int, size: int, blocks: int, left: int, inputs: int, aside: bool = False) -> int:
    """Bytes of shared memory of a program that has a whole layer, forward, see whole_forward.cu.

    Args:
        units: of the layer, padded.
        size: of a number.
        blocks: of pre-activations.
        left: numbers that a unit leaves in memory in a step.
        inputs: numbers that a row needs, if they are narrow.
        aside: whether a last block is there.
    """
    eights, pairs = -(-inputs // 8), -(-blocks // 2)
    inbox = (256 * eights if inputs else _rows(blocks * units * size)) + 32
    outbox = _rows(4 * units) if left == 1 else _rows(4 * blocks * units) + (left - blocks) * _rows(4 * units)
    last = -(-units // 32) * 64 * units if aside else 0
    return 32 * units + 16 * pairs * units + 64 * eights * pairs * units + DEPTH * inbox + 2 * outbox + last


def whole_backward_shared(
    units: int, size: int, blocks: int, states: int, others: int, inputs: int, d_inputs: bool, aside: bool = False
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
        aside: whether blocks after the fourth are there.
    """
    row = 8 * (32 * -(-inputs // 8) + 16) if inputs else 0
    inbox = _rows(blocks * units * size) + states * _rows(4 * units) + others * _rows(units * size) + row + 32
    ledger = 32 * units * -(-inputs // 8) * blocks
    tiles = 4 + more(blocks) if more(blocks) else 2 * -(-blocks // 2)
    by_inputs = 32 * units * (tiles + 2) if d_inputs else 0
    last = units // 16 * more(blocks) * 32 * units if aside else 0
    return last + units // 16 * (512 * tiles + 64) + ledger + by_inputs + DEPTH * inbox


def _rows(size: int) -> int:
    """Bytes of eight rows in a box."""
    return 8 * (size + 16)
