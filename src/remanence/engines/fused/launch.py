"""Running the kernels: buffers, launches, and the matrix products before and after.

N replicas, T steps, B rows, I inputs, H units, G blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..machine import matrix_products
from . import cells, gates, plan
from .kernels import backward_kernel, forward_kernel

Forwards = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
Backwards = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Kind:
    """Which kernel, apart from sizes."""

    cell: str
    gate: str
    blocks: int
    split: int
    coupled: bool
    beta: float
    eps: float
    has_age: bool
    reverse: bool
    precision: str
    """Of float32 products: "tf32", or "tf32x3" for full float32."""

    def bytes_on_chip(self, matrix: Tensor) -> int:
        """Of an entry of the matrix: full float32 keeps two TF32 numbers for it."""
        twice = matrix.dtype == torch.float32 and self.precision == "tf32x3"
        return matrix.element_size() * (2 if twice else 1)

    def constants(self) -> dict[str, Any]:
        return {
            "G": self.blocks,
            "SPLIT": self.split,
            "COUPLED": self.coupled,
            "BETA": self.beta,
            "HAS_AGE": self.has_age,
            "REVERSE": self.reverse,
            "PRECISION": self.precision,
        }


def forward(
    kind: Kind,
    inputs: Tensor,  # (N, T, B, I)
    weight_ih: Tensor,  # (N, G H, I)
    weight_hh: Tensor,  # (N, G H, H)
    bias: Tensor,  # (N, G H) float32
    candidate_bias: Tensor,  # (N, H) float32, or empty
    exponent: Tensor,  # (N, H) float32, or empty
    dt: Tensor | None,  # (N, T, B) float32
    lengths: Tensor | None,  # (N, B) int32
    hidden: Tensor,  # (N, B, H)
    cell: Tensor,  # (N, B, H) float32
    age: Tensor,  # (N, B, H) float32, or empty
    save: bool,
    tiles: plan.Plan | None = None,
) -> Forwards:
    """All h_t; the state after the last step; and, if `save`, what the backward pass needs."""
    replicas, steps, rows, _ = inputs.shape
    units = weight_hh.shape[2]
    wide = partial(torch.empty, dtype=torch.float32, device=inputs.device)
    with matrix_products(kind.precision == "tf32"):
        pre = _product(inputs.flatten(1, 2), weight_ih.mT).view(replicas, steps, rows, kind.blocks * units)
    outputs = torch.empty(replicas, steps, rows, units, dtype=inputs.dtype, device=inputs.device)
    kept = (replicas, steps, rows, units)
    cells_kept = wide(kept if save else 0)
    ages_kept = wide(kept if save and kind.has_age else 0)
    parts_kept = wide(kept if save and kind.split >= 0 else 0)
    last_hidden, last_cell = (wide(replicas, rows, units) for _ in range(2))
    last_age = wide((replicas, rows, units) if kind.has_age else 0)
    if rows:
        on = plan.chip(inputs.device)
        tiles = tiles or plan.make(units, rows, replicas, kind.blocks, kind.bytes_on_chip(weight_hh), False, on)
        groups = replicas * -(-rows // tiles.row_tile)
        counters = torch.zeros(groups, 32, dtype=torch.int32, device=inputs.device)
        matrix = _rounded(weight_hh, kind.precision)

        def start(tiles: plan.Plan) -> None:
            for first, grid in _launches(groups, tiles, units):
                forward_kernel[grid](
                    pre,
                    matrix,
                    bias,
                    candidate_bias,
                    exponent,
                    dt,
                    lengths,
                    hidden,
                    cell,
                    age,
                    outputs,
                    cells_kept,
                    ages_kept,
                    parts_kept,
                    last_hidden,
                    last_cell,
                    last_age,
                    counters,
                    first,
                    steps,
                    rows,
                    units,
                    kind.eps,
                    CELL=cells.DEVICE[kind.cell][0],
                    GATE=gates.DEVICE[kind.gate][0],
                    HAS_DT=dt is not None,
                    HAS_LENGTHS=lengths is not None,
                    SAVE=save,
                    **kind.constants(),
                    **_constants(tiles, units),
                )

        plan.fitted(tiles, start)
    return (
        outputs,
        last_hidden,
        last_cell,
        last_age,
        pre if save else pre.new_empty(0),
        cells_kept,
        ages_kept,
        parts_kept,
    )


def backward(
    kind: Kind,
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    exponent: Tensor,
    dt: Tensor | None,
    lengths: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    age: Tensor,
    outputs: Tensor,
    pre: Tensor,
    cells_kept: Tensor,
    ages_kept: Tensor,
    parts_kept: Tensor,
    d_outputs: Tensor,  # (N, T, B, H)
    d_last_hidden: Tensor,  # (N, B, H) float32
    d_last_cell: Tensor,
    d_last_age: Tensor,
    needs_dt: bool,
    tiles: plan.Plan | None = None,
) -> Backwards:
    """Derivatives by inputs, weight_ih, weight_hh, bias, candidate_bias, exponent, dt, hidden, cell, age."""
    replicas, steps, rows, features = inputs.shape
    units = weight_hh.shape[2]
    device, dtype = inputs.device, inputs.dtype
    wide = partial(torch.empty, dtype=torch.float32, device=device)
    d_pre = torch.empty(replicas, steps, rows, kind.blocks * units, dtype=dtype, device=device)
    d_parts = torch.empty((replicas, steps, rows, units) if kind.split >= 0 else 0, dtype=dtype, device=device)
    d_hidden, d_cell = (wide(replicas, rows, units) for _ in range(2))
    d_age = wide((replicas, rows, units) if kind.has_age else 0)
    d_exponent, d_dt = wide(exponent.shape), wide(dt.shape if needs_dt and dt is not None else 0)
    if not rows:
        d_exponent.zero_()  # the others are empty
    else:
        on = plan.chip(device)
        tiles = tiles or plan.make(units, rows, replicas, kind.blocks, kind.bytes_on_chip(weight_hh), True, on)
        unit_tiles = tiles.unit_tiles(units)
        groups = replicas * -(-rows // tiles.row_tile)
        counters = torch.zeros(groups, 32, dtype=torch.int32, device=device)
        matrix = _rounded(weight_hh, kind.precision)
        shares = wide(0 if tiles.alone else 2 * groups * unit_tiles * tiles.row_tile * units)
        exponent_shares = wide((groups, units) if kind.has_age else 0)
        dt_shares = wide((unit_tiles, replicas, steps, rows) if needs_dt else 0)

        def start(tiles: plan.Plan) -> None:
            for first, grid in _launches(groups, tiles, units):
                backward_kernel[grid](
                    pre,
                    matrix,
                    exponent,
                    dt,
                    lengths,
                    cell,
                    age,
                    cells_kept,
                    ages_kept,
                    parts_kept,
                    d_outputs,
                    d_last_hidden,
                    d_last_cell,
                    d_last_age,
                    d_pre,
                    d_parts,
                    d_hidden,
                    d_cell,
                    d_age,
                    exponent_shares,
                    dt_shares,
                    shares,
                    counters,
                    first,
                    groups,
                    steps,
                    rows,
                    units,
                    kind.eps,
                    CELL=cells.DEVICE[kind.cell][1],
                    GATE=gates.DEVICE[kind.gate][0],
                    GATE_BACK=gates.DEVICE[kind.gate][1],
                    HAS_DT=dt is not None,
                    NEEDS_DT=needs_dt,
                    HAS_LENGTHS=lengths is not None,
                    **kind.constants(),
                    **_constants(tiles, units),
                )

        plan.fitted(tiles, start)
        if kind.has_age:
            d_exponent = exponent_shares.view(replicas, -1, units).sum(1)
        if needs_dt:
            d_dt = dt_shares.sum(0)
    with matrix_products(kind.precision == "tf32"):
        flat = d_pre.flatten(1, 2)
        d_inputs = torch.bmm(flat, weight_ih).view(replicas, steps, rows, features)
        d_weight_ih = torch.bmm(flat.mT, inputs.flatten(1, 2))
        d_weight_hh = _recurrent(d_pre, outputs, hidden, kind.reverse)
        d_bias = d_pre.sum((1, 2), dtype=torch.float32)
        d_candidate_bias = wide(0)
        if kind.split >= 0:
            block = slice(kind.split * units, (kind.split + 1) * units)
            d_weight_hh[:, block] = _recurrent(d_parts, outputs, hidden, kind.reverse)
            d_candidate_bias = d_parts.sum((1, 2), dtype=torch.float32)
    return d_inputs, d_weight_ih, d_weight_hh, d_bias, d_candidate_bias, d_exponent, d_dt, d_hidden, d_cell, d_age


def _recurrent(d_pre: Tensor, outputs: Tensor, hidden: Tensor, reverse: bool) -> Tensor:
    """The sum over steps of d_pre_t^T h_{t-1}."""
    later, before = (d_pre[:, :-1], outputs[:, 1:]) if reverse else (d_pre[:, 1:], outputs[:, :-1])
    first = d_pre[:, -1] if reverse else d_pre[:, 0]
    return torch.baddbmm(torch.bmm(first.mT, hidden), later.flatten(1, 2).mT, before.flatten(1, 2))


def _rounded(matrix: Tensor, precision: str) -> Tensor:
    """Nearest TF32 numbers where products are TF32: the tensor cores would cut digits off."""
    if matrix.dtype != torch.float32 or precision != "tf32":
        return matrix
    return ((matrix.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32, from factors that may be narrower."""
    if a.dtype == torch.float32:
        return torch.bmm(a, b)
    if a.is_cuda:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())


def _launches(groups: int, tiles: plan.Plan, units: int) -> Iterator[tuple[int, tuple[int]]]:
    """First group and grid of every launch: whole groups, and never more programs than can run at the same time."""
    unit_tiles = tiles.unit_tiles(units)
    per_launch = max(1, tiles.at_once // unit_tiles) if not tiles.alone else groups
    for first in range(0, groups, per_launch):
        yield first, (min(per_launch, groups - first) * unit_tiles,)


def _constants(tiles: plan.Plan, units: int) -> dict[str, Any]:
    return {
        "ALONE": tiles.alone,
        "RESIDENT": tiles.resident,
        "ROW_TILE": tiles.row_tile,
        "UNIT_TILE": tiles.unit_tile,
        "UNIT_TILES": tiles.unit_tiles(units),
        "CHUNK": tiles.chunk,
        "CHUNKS": tiles.chunks(units),
        "num_warps": tiles.warps,
        "num_stages": 1,
        "launch_cooperative_grid": not tiles.alone and tiles.unit_tiles(units) > 1,
    }
