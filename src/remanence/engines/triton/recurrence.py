"""The recurrence by Triton's kernels: what they are given, and starting them, in one launch or in one a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..kernels.contract import ALIGNMENT, Final, Kept, Kind, Operands, RecurrenceGradients, Terms, Upstream
from . import single_steps, starting, tiling
from .derived import device_functions
from .kernels import backward_kernel, forward_kernel

HALVED_FROM = 256
"""From so many units on a forward pass in TF32 takes its factors in 16 bits, see `split`."""


def terms(kind: Kind, operands: Operands) -> Terms:
    """Inputs are multiplied before, see `contract.Terms`."""
    return Terms(ALIGNMENT, multiplies_inputs=False, keeps_before=False)


def split(kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """The recurrent matrix as the forward pass takes it, and what its products are multiplied with.

    A TF32 number has the eleven digits of a float16. So in TF32 the forward pass takes both factors as float16, which
    loses nothing where they are in its range: h is between -1 and 1, and the matrix is divided by a power of two above
    its largest entry. (Entries below a sixteen-thousandth of that have fewer digits; their errors stay below those of
    the largest.) Half the bytes on chip and on the way there, twice the speed of the tensor cores. The derivatives of a
    backward pass have no such range and stay TF32.

    Args:
        kind: which kernel.
        matrix: `(N, G H, H)`.

    Returns:
        The matrix, and `(N, 1, 1)` float32; the matrix itself and None for small ones and other precisions.
    """
    if matrix.dtype != torch.float32 or kind.precision != "tf32" or matrix.shape[-1] < HALVED_FROM:
        return matrix, None
    scale = torch.linalg.vector_norm(matrix, torch.inf, (-2, -1), keepdim=True)
    scale.view(torch.int32).add_(0x00800000).bitwise_and_(0x7F800000)
    return torch.div(matrix, scale, out=torch.empty_like(matrix, dtype=torch.float16)), scale


def widened(matrix: Tensor, scale: Tensor | None) -> Tensor:
    """What `split` returned as the backward pass takes it: float32, in numbers that TF32 has.

    The tensor cores would cut digits off others. Of small matrices the kernel sees to that itself.
    """
    return matrix if scale is None else matrix.float().mul_(scale)


def forward(kind: Kind, operands: Operands, scale: Tensor | None, pre: Tensor | None, kept: Kept, final: Final) -> None:
    """All steps; fills what it is given, see `contract.Backend`."""
    *lead, steps, rows, _ = operands.inputs.shape
    replicas = lead[0] if lead else 1
    matrix, outputs, save = operands.weight_hh, kept.outputs, kept.pre is not None
    units, device = matrix.shape[-1], outputs.device
    tiles = tiling.make(units, rows, replicas, kind.blocks, _bytes_on_chip(kind, matrix), False, tiling.chip(device))
    groups = replicas * -(-rows // tiles.row_tile)
    counters = torch.zeros(groups, 32, dtype=torch.int32, device=device)
    hidden = outputs.new_zeros(*lead, rows, units) if operands.hidden is None else operands.hidden
    tensors = (
        pre,
        matrix,
        scale,
        *operands[3:8],
        hidden,
        *operands[9:],
        outputs,
        kept.cells,
        kept.carried,
        kept.parts,
        *final,
        counters,
    )

    def start(tiles: tiling.Tiling) -> None:
        for first, grid in _launches(groups, tiles, units):
            numbers = (first, steps, rows, units)
            starting.start(
                forward_kernel,
                _forward_constants,
                (kind, operands.dt is not None, tiles, units, save),
                grid,
                tensors,
                numbers,
            )

    def step_by_step(tiles: tiling.Tiling) -> None:
        numbers = (0, steps, rows, units)
        single_steps.forward(
            tiles,
            _forward_constants,
            (kind, operands.dt is not None, tiles, units, save, True),
            tensors,
            numbers,
            kind.reverse,
        )

    _run((forward_kernel, kind, *_sorts(operands), save), tiles, start, step_by_step, device)


def backward(kind: Kind, operands: Operands, scale: Tensor | None, kept: Kept, by: Upstream) -> RecurrenceGradients:
    """All steps back; fills what it is given, see `contract.Backend`."""
    *lead, steps, rows, _ = operands.inputs.shape
    replicas = lead[0] if lead else 1
    pre = kept.pre
    assert pre is not None
    matrix = widened(operands.weight_hh, scale)
    units, device = matrix.shape[-1], pre.device
    tiles = tiling.make(units, rows, replicas, kind.blocks, _bytes_on_chip(kind, matrix), True, tiling.chip(device))
    unit_tiles = tiles.unit_tiles(units)
    groups = replicas * -(-rows // tiles.row_tile)
    counters = torch.zeros(groups, 32, dtype=torch.int32, device=device)
    new = partial(torch.empty, dtype=torch.float32, device=device)
    shares = None if tiles.alone else new(2 * groups * unit_tiles * tiles.row_tile * units)
    d_own = None if operands.own is None else new(*lead, groups // replicas, kind.own, units)
    d_dt = new(unit_tiles, *lead, steps, rows) if by.wants_dt else None
    tensors = (
        *(pre, matrix, operands.own, operands.dt, operands.lengths, operands.cell, operands.carried),
        *(kept.cells, kept.carried, kept.parts, by.outputs),
        *(*by.final, by.pre, by.parts, *by.state, d_own, d_dt, shares, counters),
    )

    def start(tiles: tiling.Tiling) -> None:
        for first, grid in _launches(groups, tiles, units):
            numbers = (first, groups, steps, rows, units)
            starting.start(
                backward_kernel,
                _backward_constants,
                (kind, operands.dt is not None, tiles, units),
                grid,
                tensors,
                numbers,
            )

    def step_by_step(tiles: tiling.Tiling) -> None:
        numbers = (0, groups, steps, rows, units)
        single_steps.backward(
            tiles,
            _backward_constants,
            (kind, operands.dt is not None, tiles, units, True),
            tensors,
            numbers,
            kind.reverse,
        )

    _run((backward_kernel, kind, *_sorts(operands), by.wants_dt), tiles, start, step_by_step, device)
    if d_own is not None:
        d_own = d_own.sum(-3)
        d_own = d_own.squeeze(-2) if kind.own == 1 else d_own
    return RecurrenceGradients(d_own, None if d_dt is None else d_dt.sum(0))


def _bytes_on_chip(kind: Kind, matrix: Tensor) -> int:
    """Of an entry of the matrix: full float32 keeps two TF32 numbers for it."""
    twice = matrix.dtype == torch.float32 and kind.precision == "tf32x3"
    return matrix.element_size() * (2 if twice else 1)


def _sorts(operands: Operands) -> tuple[Any, ...]:
    """What of a task decides how much of the chip a kernel takes, beside its kind."""
    matrix = operands.weight_hh
    return matrix.dtype, matrix.shape[-1], operands.dt is None, operands.lengths is None


def _run(
    of: tuple[Any, ...],
    tiles: tiling.Tiling,
    start: Callable[[tiling.Tiling], None],
    step_by_step: Callable[[tiling.Tiling], None],
    device: torch.device,
) -> None:
    """Start a pass; step by step where the driver takes nothing else."""
    if not single_steps.is_needed(device):
        try:
            return tiling.fitted((device, *of), tiles, start)
        except tiling.RefusedError as refusal:  # before anything was done: the first launch is the largest
            single_steps.note(device, refusal)
    return tiling.fitted((device, *of, "a step"), tiles, step_by_step)


def _launches(groups: int, tiles: tiling.Tiling, units: int) -> Iterator[tuple[int, tuple[int]]]:
    """First group and grid of every launch: whole groups, and never more programs than can run at the same time."""
    unit_tiles = tiles.unit_tiles(units)
    per_launch = max(1, tiles.at_once // unit_tiles) if not tiles.alone else groups
    for first in range(0, groups, per_launch):
        yield first, (min(per_launch, groups - first) * unit_tiles,)


def _forward_constants(
    kind: Kind, has_dt: bool, tiles: tiling.Tiling, units: int, save: bool, one_step: bool = False
) -> dict[str, Any]:
    called = device_functions(kind, has_dt)
    return {
        "CELL": called.cell_forward,
        "GATE": called.gate_forward,
        "GATE_FIXED": called.gate_fixed,
        "SAVE": save,
        **_constants(kind, has_dt, tiles, units, one_step),
    }


def _backward_constants(
    kind: Kind, has_dt: bool, tiles: tiling.Tiling, units: int, one_step: bool = False
) -> dict[str, Any]:
    called = device_functions(kind, has_dt)
    return {
        "CELL_SLOPES": called.cell_slopes,
        "CELL_BACK": called.cell_backward,
        "GATE_SLOPES": called.gate_slopes,
        "GATE_BACK": called.gate_backward,
        "GATE_FIXED": called.gate_fixed,
        "GATE_OWN": called.gate_own,
        "BY_STEPS": one_step,
        **_constants(kind, has_dt, tiles, units, one_step),
    }


def _constants(kind: Kind, has_dt: bool, tiles: tiling.Tiling, units: int, one_step: bool) -> dict[str, Any]:
    return {
        "G": kind.blocks,
        "SPLIT": kind.split,
        "COUPLED": kind.coupled,
        "BETA": kind.beta,
        "ROWS": device_functions(kind, has_dt).rows,
        "CARRIED": kind.carried,
        "OWN": kind.own,
        "REVERSE": kind.reverse,
        "PRECISION": kind.precision,
        "READY": units >= HALVED_FROM,
        "ALONE": tiles.alone,
        "RESIDENT": tiles.resident,
        "ROW_TILE": tiles.row_tile,
        "UNIT_TILE": tiles.unit_tile,
        "UNIT_TILES": tiles.unit_tiles(units),
        "CHUNK": tiles.chunk,
        "CHUNKS": tiles.chunks(units),
        "num_warps": tiles.warps,
        "num_stages": 1,
        "launch_cooperative_grid": not tiles.alone and not one_step and tiles.unit_tiles(units) > 1,
    }
