"""How a task is tiled into programs. Chosen by rules, never by autotuning: results must not depend on timings."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch


@dataclass(frozen=True)
class Tiling:
    """Tile sizes of one launch, see `kernels`."""

    row_tile: int
    unit_tile: int
    chunk: int
    warps: int
    resident: int
    """Number of blocks of the recurrent matrix that stay on chip."""
    at_once: int
    """Maximum number of programs in a launch: more than can be resident at once would deadlock."""
    alone: bool = False
    """Whether one program holds all units of its group."""
    per_processor: int = 1
    """Programs expected to share an SM."""

    def unit_tiles(self, units: int) -> int:
        """Number of programs in a group."""
        return 1 if self.alone else -(-units // self.unit_tile)

    def chunks(self, units: int) -> int:
        """Number of chunks of the inner dimension of a matmul."""
        return -(-units // self.chunk)


@dataclass(frozen=True)
class Chip:
    """The properties of a GPU that the tiling depends on."""

    processors: int
    """Number of SMs."""
    shared: int
    """Shared memory per program in bytes."""


@lru_cache
def chip(device: torch.device) -> Chip:
    """The GPU of a device; the interpreter counts as one SM with unlimited memory."""
    if device.type != "cuda":
        return Chip(processors=1, shared=1 << 40)
    properties = torch.cuda.get_device_properties(device)
    return Chip(properties.multi_processor_count, properties.shared_memory_per_block_optin)  # type: ignore[attr-defined]


def power_of_two(n: int, least: int = 16) -> int:
    """The smallest power of two that is at least n."""
    return max(least, 1 << (n - 1).bit_length())


SHAPES = ((16, 32), (64, 16), (32, 32), (32, 16))
"""Rows and units of a program for the forward pass in half precision, best first."""
SHAPES_FLOAT32 = ((16, 32), (32, 32), (32, 16))
"""The same in float32: 64 rows spill registers."""
SHAPES_BACKWARD = ((16, 32), (32, 32), (32, 16), (64, 16))
"""The same for the backward pass in half precision."""
STREAMED_CHUNK = 64
"""Rows of the matrix that are streamed at a time if not all of it fits on chip."""
OVERHEAD = 1024
"""Bytes of shared memory for everything that does not grow with the tiles."""

_smaller: dict[tuple[Hashable, Tiling], Tiling] = {}


class RefusedError(RuntimeError):
    """The driver refused a cooperative launch."""


def fitted(of: Hashable, tiles: Tiling, start: Callable[[Tiling], None]) -> None:
    """Launch kernels with these tiles, or with less on chip if the compiled kernel exceeds the GPU's resources.

    Args:
        of: Key of what the kernels are compiled for, apart from tiles. Results for one key do not apply to another.
        tiles: Tiling to try first.
        start: Launches the kernels.
    """
    from triton.runtime.errors import OutOfResources  # type: ignore[import-untyped]

    while True:
        while _smaller and (of, tiles) in _smaller:
            tiles = _smaller[of, tiles]
        try:
            return start(tiles)
        except OutOfResources:
            if tiles.resident > 0:
                chunk = min(tiles.chunk, STREAMED_CHUNK)
                _smaller[of, tiles] = replace(tiles, resident=tiles.resident - 1, chunk=chunk)
            elif tiles.chunk > 16:
                _smaller[of, tiles] = replace(tiles, chunk=tiles.chunk // 2)
            else:
                raise
        except RuntimeError as error:
            # The driver refuses a cooperative launch with more programs than can be resident at once.
            if "cooperative" not in str(error):
                raise
            if tiles.per_processor == 1:
                raise RefusedError(str(error)) from error
            _smaller[of, tiles] = replace(tiles, at_once=tiles.at_once // tiles.per_processor, per_processor=1)


def all_on_chip(units: int, rows: int, blocks: int, itemsize: int, on: Chip) -> bool:
    """Whether a backward pass has the whole matrix on chip, all rows in one launch, and small row tiles; see `make`."""
    tiles = make(-(-units // 16) * 16, rows, 1, blocks, itemsize, True, on)
    programs = -(-rows // tiles.row_tile) * tiles.unit_tiles(units)
    return tiles.resident == blocks and programs <= tiles.at_once and tiles.row_tile <= tiles.unit_tile


@lru_cache(maxsize=1024)
def make(units: int, rows: int, replicas: int, blocks: int, itemsize: int, backward: bool, on: Chip) -> Tiling:
    """Choose the tiles for a task.

    As small as possible while all programs of the launch are resident at once and most of the matrix is on chip. If not
    all rows fit, there are several launches.

    Args:
        units: H, a multiple of 16.
        rows: Number of sequences of one replica.
        replicas: Number of independent models in the launch.
        blocks: Number of blocks of the recurrent matrix.
        itemsize: Bytes per entry of the recurrent matrix.
        backward: Whether for the backward pass.
        on: The GPU.
    """
    if on.processors == 1:
        tile = power_of_two(units)
        return Tiling(16, tile, tile, 4, blocks, at_once=1, alone=True)
    chunk = min(128, power_of_two(units))
    width = -(-units // chunk) * chunk

    def footprint(row_tile: int, unit_tile: int) -> int:
        """Shared memory in bytes of a program that keeps its whole slice on chip."""
        return blocks * width * unit_tile * itemsize + row_tile * chunk * 4

    def fitting(row_tile: int, unit_tile: int) -> int:
        """Number of blocks that fit on chip, besides the rows in transfer or two chunks of each block that does not."""
        room = on.shared - OVERHEAD
        column = unit_tile * itemsize
        if footprint(row_tile, unit_tile) <= room:
            return blocks
        streamed = 2 * STREAMED_CHUNK
        return max(0, min(blocks - 1, (room // column - blocks * streamed) // (width - streamed)))

    def launches(row_tile: int, unit_tile: int) -> int:
        groups = replicas * -(-rows // row_tile)
        return -(-groups // max(1, on.processors // -(-units // unit_tile)))

    def programs(row_tile: int, unit_tile: int) -> int:
        return replicas * -(-rows // row_tile) * -(-units // unit_tile)

    order: tuple[tuple[int, int], ...] = SHAPES_BACKWARD if backward else SHAPES
    if itemsize > 2:
        order = SHAPES_FLOAT32
        if backward and units >= 256:
            order = ((16, 16), *order)  # summing the many shares takes longer than the matmuls
    shapes = [
        (row_tile, unit_tile)
        for row_tile, unit_tile in order
        if (row_tile == 16 or row_tile < 2 * rows)
        and unit_tile <= power_of_two(units)
        and -(-units // unit_tile) <= on.processors
    ]
    most = blocks if backward or itemsize == 2 else min(blocks, 3)
    if programs(16, 32) > on.processors >= programs(16, 32) / 2 and 2 * (footprint(16, 32) + 1024) <= on.shared + 1024:
        # Two small programs on an SM hide each other's waits; one with twice the rows has twice the work between waits.
        return Tiling(16, 32, chunk, 8 if backward else 4, blocks, 2 * on.processors, per_processor=2)
    streams_half = all(fitting(*shape) <= blocks - 2 for shape in shapes if programs(*shape) <= on.processors)
    for together in (True, False):
        for least in (most, blocks // 2, 0):
            if together and least < most and streams_half and launches(32, 16) <= 2 and fitting(32, 16) == blocks:
                # Two launches with the whole matrix on chip are faster than one that streams half of it.
                warps, chunk = (8, STREAMED_CHUNK) if backward else (4, chunk)
                return Tiling(32, 16, chunk, warps, blocks, at_once=on.processors)
            for row_tile, unit_tile in shapes if together else sorted(shapes, reverse=True):
                if together and programs(row_tile, unit_tile) > on.processors:
                    continue
                resident = fitting(row_tile, unit_tile)
                if resident >= least:
                    warps = 8 if backward or resident < blocks - 1 else 4
                    if 0 < resident < blocks:
                        chunk = min(chunk, STREAMED_CHUNK)  # otherwise large chunks: fewer, and faster to compile
                    return Tiling(row_tile, unit_tile, chunk, warps, resident, at_once=on.processors)
    unit_tile = power_of_two(-(-units // on.processors), 32)
    return Tiling(16, unit_tile, min(chunk, STREAMED_CHUNK), 8, fitting(16, unit_tile), at_once=on.processors)
