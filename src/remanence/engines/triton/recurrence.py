"""Runs the recurrence with the Triton kernels: sets up their arguments and launches them, once or once per step."""

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
"""Number of units from which on a TF32 forward pass multiplies in float16, see `split`."""


def terms(kind: Kind, operands: Operands) -> Terms:
    """Inputs are multiplied before the recurrence, see `contract.Terms`."""
    return Terms(ALIGNMENT, multiplies_inputs=False, keeps_before=False)


def split(kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """The recurrent matrix in the form the forward pass expects, and the scale of its products.

    TF32 has the 11-bit significand of float16. So in TF32 the forward pass converts both factors to float16, which
    loses nothing within its range: h is between -1 and 1, and the matrix is divided by a power of two above its largest
    entry. (Entries below 1/16000 of that have fewer significand bits; their errors stay below those of the largest.)
    This halves the bytes on chip and in transfer, and doubles the tensor core throughput. The gradients of a backward
    pass have no such bounded range and stay TF32.

    Args:
        kind: Kernel variant.
        matrix: `(N, G H, H)`.

    Returns:
        The float16 matrix and its scale `(N, 1, 1)` in float32; the matrix unchanged and None for small matrices and
        other precisions.
    """
    if matrix.dtype != torch.float32 or kind.precision != "tf32" or matrix.shape[-1] < HALVED_FROM:
        return matrix, None
    scale = torch.linalg.vector_norm(matrix, torch.inf, (-2, -1), keepdim=True)
    scale.view(torch.int32).add_(0x00800000).bitwise_and_(0x7F800000)
    return torch.div(matrix, scale, out=torch.empty_like(matrix, dtype=torch.float16)), scale


def widened(matrix: Tensor, scale: Tensor | None) -> Tensor:
    """The result of `split` in the form the backward pass expects: float32 values that TF32 represents exactly.

    Tensor cores would truncate other values. For small matrices the kernel rounds by itself.
    """
    return matrix if scale is None else matrix.float().mul_(scale)


def forward(kind: Kind, operands: Operands, scale: Tensor | None, pre: Tensor | None, kept: Kept, final: Final) -> None:
    """Run all steps; fills `kept` and `final`, see `contract.Backend`."""
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
    """Run all steps backward; fills the buffers in `by`, see `contract.Backend`."""
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
    """Bytes on chip per entry of the matrix: full float32 stores it as two TF32 values."""
    twice = matrix.dtype == torch.float32 and kind.precision == "tf32x3"
    return matrix.element_size() * (2 if twice else 1)


def _sorts(operands: Operands) -> tuple[Any, ...]:
    """Properties of a task that decide the resource usage of its kernel, besides its kind."""
    matrix = operands.weight_hh
    return matrix.dtype, matrix.shape[-1], operands.dt is None, operands.lengths is None


def _run(
    of: tuple[Any, ...],
    tiles: tiling.Tiling,
    start: Callable[[tiling.Tiling], None],
    step_by_step: Callable[[tiling.Tiling], None],
    device: torch.device,
) -> None:
    """Launch a pass; with one launch per step if the driver refuses cooperative launches."""
    if not single_steps.is_needed(device):
        try:
            return tiling.fitted((device, *of), tiles, start)
        except tiling.RefusedError as refusal:  # nothing has run yet: the first launch is the largest
            single_steps.note(device, refusal)
    return tiling.fitted((device, *of, "a step"), tiles, step_by_step)


def _launches(groups: int, tiles: tiling.Tiling, units: int) -> Iterator[tuple[int, tuple[int]]]:
    """First group and grid of every launch: whole groups, and never more programs than can be resident at once."""
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
