"""Launch shapes: how a task is divided among clusters, thread blocks and warps.

The shape follows from the sizes alone and is never autotuned: results must not depend on timings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch

LARGEST = 16
"""Largest cluster of a whole GPU, in thread blocks."""
BLOCKS = 8
"""Largest number of blocks of pre-activations, which are row blocks of the recurrent matrix."""
MOST_INPUTS = 16
"""Widest inputs that the kernels multiply by the input matrix themselves."""
CARRIED = 6
"""Largest number of carried values."""
CARRIED_ALWAYS = 2
"""Carried values for which staging buffers have space in layers of every size with at most four blocks."""
DEPTH = 4
"""Steps in the prefetch pipeline, see steps.cuh."""


@dataclass(frozen=True)
class LaunchShape:
    """The shape of one launch, see kernels.cuh. A row is a sequence of the batch."""

    warps: int
    """Warps per thread block, each with four units unless `whole`."""
    cluster: int
    """Thread blocks per cluster."""
    tiles: int
    """Tiles of eight rows per cluster."""
    together: int = 1
    """Thread blocks that must fit on an SM; limits the registers that the compiler may use."""
    whole: bool = False
    """Whether a thread block has the whole layer, see whole.cuh: each of its warps then has eight or sixteen units."""
    held: int = 0
    """Tiles of the matrix that a thread keeps in registers in a wide layer, see wide.cuh; in other layers all are."""
    ahead: int = 0
    """Tiles of the rest that a thread prefetches."""
    streamed: int = 0
    """Tiles that do not fit on chip and are streamed from L2 in every step."""
    shelved: bool = False
    """Whether low-order parts are on the shelf although registers alone could hold them, see `shelf`."""

    @property
    def wide(self) -> bool:
        """Whether the matrix is too large for registers."""
        return self.held > 0

    def groups(self, rows: int, replicas: int) -> int:
        """Number of clusters for a batch."""
        return replicas * -(-rows // (8 * self.tiles))


def parts(dtype: torch.dtype, tf32: bool) -> int:
    """Number of float16 values that represent one operand of a matmul: full float32 takes two."""
    return 2 if dtype == torch.float32 and not tf32 else 1


MOST_UNITS = 32
"""Units per thread block if registers hold its slice of the matrix."""
MOST_UNITS_WIDE = 48
"""Units per thread block if the rest of the slice is in shared memory (on the shelf)."""
MOST_UNITS_STREAMED = 72
"""Units per thread block if part of the slice is streamed from L2 in every step."""
NEIGHBOURS = 18
"""SMs of a GPC: all thread blocks of a cluster are on one GPC, and a GPC has space for one large cluster only."""
SHARED = 224 * 1024
"""Bytes of shared memory available to a thread block."""
MOST_UNITS_WHOLE = 128
"""Units of a layer that fits into one thread block."""
MOST_ROWS_WHOLE = 5 * 128
"""Rows of the recurrent matrix of such a layer."""


PAGES = 3 + CARRIED_ALWAYS
"""Values per unit that a step of most cells needs at most besides its blocks: h, cell, carried values, the separate
recurrent part of a GRU's candidate."""


def pages_of(carried: int, apart: bool) -> int:
    """The same for a cell with this many carried values, with or without a separate recurrent part."""
    return max(PAGES, 2 + carried + apart)


@lru_cache(maxsize=256)
def most_units(parts: int, largest: int, blocks: int = 4, pages: int = PAGES) -> int:
    """Largest number of units of a layer.

    Args:
        parts: Float16 values per operand, see `parts`.
        largest: Largest cluster that the GPU supports.
        blocks: Blocks of pre-activations.
        pages: Values per unit that a step needs besides them.
    """
    if parts > 1 and blocks <= 4 and pages <= PAGES:
        return MOST_UNITS * largest
    if parts > 1:
        return MOST_UNITS * max(c for c in range(largest + 1) if _in_registers(MOST_UNITS * c, parts, blocks, pages))
    return (MOST_UNITS_STREAMED if largest == LARGEST else MOST_UNITS_WIDE) * largest


def more(blocks: int) -> int:
    """Number of blocks after the fourth."""
    return max(0, blocks - 4)


def aside(plan: LaunchShape, parts: int, blocks: int, backward: bool) -> bool:
    """Whether blocks after the fourth are in shared memory, because registers would spill otherwise.

    The limits are numbers of registers for the matrix that leave the compiler enough for the rest: fewer in the
    backward pass with two tiles of rows, and fewer still if two thread blocks share an SM.
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
    return parts > 1 and (plan.shelved or chunks > 64 or chunks * max(4, blocks) > 320)


def _fits(plan: LaunchShape, parts: int, blocks: int, pages: int, backward: bool) -> bool:
    """Whether shared memory suffices for inputs of any width."""
    if backward:
        return backward_shared(plan, parts, blocks, blocks + pages, blocks + 1, MOST_INPUTS) <= SHARED
    return forward_shared(plan, parts, blocks, blocks + pages, 0) <= SHARED


def _in_registers(units: int, parts: int, blocks: int, pages: int) -> bool:
    """Whether registers and the shelf hold the matrix in both passes, for at most MOST_UNITS per thread block."""
    one = LaunchShape(8, -(-units // MOST_UNITS), 1)
    usual = blocks <= 4 and pages <= PAGES
    return usual or all(_fits(one, parts, blocks, pages, backward) for backward in (False, True))


def shelf(plan: LaunchShape, parts: int, blocks: int, backward: bool) -> int:
    """Bytes of shared memory for the part of a thread block's slice that is not in registers (the shelf).

    That is the low-order parts of full float32 or, if `aside`, blocks after the fourth.
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
    """Launch shape of a task: all clusters resident at once if possible, and then as few units per thread block as fit.

    With more work than fits, it is the shape that was fastest on an H200. Up to 128 units, several small thread blocks
    share an SM (up to 64 units, in the forward pass only). With more than twice the work that fits, a thread block has
    the whole layer, except in full float32, which does not fit. Otherwise there are eight warps. With more than PAGES
    pages, two thread blocks of that size do not share an SM, because registers would spill: a cluster has two tiles
    instead. Both passes make the same choice about whole layers, because the layout of saved tensors depends on it.

    Args:
        units: Units of the layer.
        rows: Sequences per replica.
        replicas: Independent models in the launch.
        parts: Float16 values per operand, see `parts`.
        backward: Whether it is the backward pass.
        processors: SMs of the GPU.
        largest: Largest cluster that the GPU supports; `units` must not exceed `most_units`.
        countable: Whether 32 bits can index all vectors of pre-activations, as kernels for whole layers do.
        blocks: Blocks of pre-activations.
        pages: Values per unit that a step needs besides them.
    """
    groups = replicas * -(-rows // 8)
    small, rich = -(-units // 16), pages > PAGES
    room = processors - processors // 16  # a cluster does not span GPCs, so that not all SMs can be used
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
    one, two = LaunchShape(8, cluster, 1), LaunchShape(8, cluster, 2)
    if 8 * cluster * parts > 64:  # the shelf leaves no space for a second tile, nor may more blocks
        shelved = replace(one, shelved=True)
        if backward and parts > 1 and rich and blocks > 4 and _fits(shelved, parts, blocks, pages, backward):
            return shelved
        full = _finer_on_shelf(one, parts, blocks) or not _fits(two, parts, blocks, pages, backward)
        return one if programs <= processors - cluster or full else two
    together = min(2, -(-programs // room))
    if together > 1 and rich:
        return two if _fits(two, parts, blocks, pages, backward) else one
    return LaunchShape(8, cluster, 1, together)


def make_whole(units: int, backward: bool) -> LaunchShape:
    """Launch shape with a whole layer per thread block; a thread has one unit, or two in the backward pass."""
    warps = -(-units // 16) * (1 if backward else 2)
    return LaunchShape(warps, 1, 1, (8 if backward else 16) // warps, whole=True)


def _in_one(units: int, blocks: int, pages: int) -> bool:
    """Whether a whole layer fits into a thread block, in both passes."""
    if units > MOST_UNITS_WHOLE or units * blocks > MOST_ROWS_WHOLE:
        return False
    if blocks <= 4 and pages <= PAGES:
        return True
    there, back = (aside(make_whole(units, backward), 1, blocks, backward) for backward in (False, True))
    units = 16 * -(-units // 16)
    forward = max(whole_forward_shared(units, 4, blocks, blocks + pages, inputs, there) for inputs in (0, MOST_INPUTS))
    return max(forward, whole_backward_shared(units, 4, blocks, pages - 1, 1, MOST_INPUTS, False, back)) <= SHARED


def at_once(processors: int) -> int:
    """Number of large clusters that are resident at once."""
    return max(1, processors // NEIGHBOURS)


def make_wide(units: int, groups: int, backward: bool, processors: int, blocks: int = 4) -> LaunchShape:
    """Launch shape of a layer too large for registers, see wide.cuh.

    In the forward pass, a cluster has two or three tiles of eight rows if there are more tiles than resident clusters.
    With more than four blocks, part of the matrix may not fit on chip.

    Args:
        units: Units of the layer.
        groups: Tiles of eight rows.
        backward: Whether it is the backward pass.
        processors: SMs of the GPU.
        blocks: Blocks of pre-activations.
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
"""At most one in this many tiles of the matrix may be streamed to let a cluster have more rows."""


def make_streamed(units: int, backward: bool, blocks: int = 4) -> LaunchShape:
    """Launch shape of a layer too large for the chip: the part of the matrix that does not fit is streamed from L2."""
    warps = -(-units // (4 * LARGEST))
    return _with_overflow(LaunchShape(warps, LARGEST, 1, held=max(1, 60 - 4 * warps), ahead=6), backward, blocks)


def _with_overflow(sizes: LaunchShape, backward: bool, blocks: int) -> LaunchShape:
    lacking = (wide_backward_shared if backward else wide_forward_shared)(sizes, blocks) - SHARED
    return replace(sizes, streamed=max(0, -(-lacking // _tile(sizes))))


def forward_shared(plan: LaunchShape, parts: int, blocks: int, left: int, inputs: int) -> int:
    """Bytes of shared memory per thread block of the forward pass, see forward.cu.

    Args:
        plan: Launch shape.
        parts: Float16 values per operand.
        blocks: Blocks of pre-activations.
        left: Values per unit that a step stores.
        inputs: Inputs per row if the kernel multiplies them, else 0.
    """
    row = 8 * -(-inputs // 8)
    hidden = 2 * parts * plan.cluster * plan.warps * 64 * plan.tiles
    return 128 + shelf(plan, parts, blocks, backward=False) + hidden + _staged(plan, 0 if inputs else blocks, left, row)


def backward_shared(plan: LaunchShape, parts: int, blocks: int, given: int, left: int, inputs: int) -> int:
    """Bytes of shared memory per thread block of the backward pass, see backward.cu.

    Args:
        plan: Launch shape.
        parts: Float16 values per operand.
        blocks: Blocks of pre-activations.
        given: Values per unit that a step loads.
        left: Values per unit that it stores.
        inputs: Inputs per row if the kernel multiplies them, else 0.
    """
    row = 8 * -(-inputs // 8) + 4 if inputs else 0
    units = 4 * plan.warps
    tile = plan.cluster * units * 8 * 4 + parts * units * 8 * (8 + 2 * more(blocks)) + plan.warps * 8 * 4
    return 128 + shelf(plan, parts, blocks, backward=True) + 2 * tile * plan.tiles + _staged(plan, given, left, row)


def _staged(plan: LaunchShape, given: int, left: int, row: int) -> int:
    rows = 8 * plan.tiles
    page = rows * (4 * plan.warps + 4)
    return 4 * (DEPTH * (given * page + rows * row + rows) + 2 * left * page)


def wide_forward_shared(plan: LaunchShape, blocks: int = 4) -> int:
    """Bytes of shared memory per thread block of a wide layer, forward, see wide_forward.cu."""
    return 128 + 2 * 64 * plan.cluster * plan.warps * plan.tiles + _shelved(plan, False, blocks)


def wide_backward_shared(plan: LaunchShape, blocks: int = 4) -> int:
    """Bytes of shared memory per thread block of a wide layer, backward, see wide_backward.cu."""
    units = 4 * plan.warps
    warps = 4 * -(-plan.warps // 4)
    derivatives = units * 8 * 8 + more(blocks) * warps * 8 * 8
    return 128 + 2 * (plan.cluster * units * 8 * 4 + derivatives + warps * 8 * 4) + _shelved(plan, True, blocks)


def _tiles(plan: LaunchShape, backward: bool, blocks: int) -> int:
    """Tiles of the matrix per thread of a wide layer."""
    tiles = plan.cluster * plan.warps // 4
    if not backward:
        return tiles + more(blocks) * -(-tiles // 4)
    return -(-plan.cluster // 4) * (plan.warps + more(blocks) * -(-plan.warps // 4))


def _shelved(plan: LaunchShape, backward: bool, blocks: int) -> int:
    return max(0, _tiles(plan, backward, blocks) - plan.held - plan.streamed) * _tile(plan)


def _tile(plan: LaunchShape) -> int:
    """Bytes of one tile of the matrix for each thread of a thread block."""
    return 32 * plan.warps * 16


def whole_forward_shared(units: int, size: int, blocks: int, left: int, inputs: int, aside: bool = False) -> int:
    """Bytes of shared memory of a thread block with a whole layer, forward, see whole_forward.cu.

    Args:
        units: Units of the layer, padded.
        size: Bytes per element.
        blocks: Blocks of pre-activations.
        left: Values per unit that a step stores.
        inputs: Inputs per row if the kernel multiplies them, else 0.
        aside: Whether an odd last block is in shared memory.
    """
    eights, pairs = -(-inputs // 8), -(-blocks // 2)
    inbox = (256 * eights if inputs else _rows(blocks * units * size)) + 32
    outbox = _rows(4 * units) if left == 1 else _rows(4 * blocks * units) + (left - blocks) * _rows(4 * units)
    last = -(-units // 32) * 64 * units if aside else 0
    return 32 * units + 16 * pairs * units + 64 * eights * pairs * units + DEPTH * inbox + 2 * outbox + last


def whole_backward_shared(
    units: int, size: int, blocks: int, states: int, others: int, inputs: int, d_inputs: bool, aside: bool = False
) -> int:
    """Bytes of shared memory of a thread block with a whole layer, backward, see whole_backward.cu.

    Args:
        units: Units of the layer, padded.
        size: Bytes per element.
        blocks: Blocks of pre-activations.
        states: Float32 values per unit that a step loads.
        others: Other values per unit that it loads besides the blocks, in the dtype of the inputs.
        inputs: Inputs per row if the kernel multiplies them, else 0.
        d_inputs: Whether it computes gradients of the inputs.
        aside: Whether blocks after the fourth are in shared memory.
    """
    row = 8 * (32 * -(-inputs // 8) + 16) if inputs else 0
    inbox = _rows(blocks * units * size) + states * _rows(4 * units) + others * _rows(units * size) + row + 32
    ledger = 32 * units * -(-inputs // 8) * blocks
    tiles = 4 + more(blocks) if more(blocks) else 2 * -(-blocks // 2)
    by_inputs = 32 * units * (tiles + 2) if d_inputs else 0
    last = units // 16 * more(blocks) * 32 * units if aside else 0
    return last + units // 16 * (512 * tiles + 64) + ledger + by_inputs + DEPTH * inbox


def _rows(size: int) -> int:
    """Bytes of eight rows of a staging buffer."""
    return 8 * (size + 16)
