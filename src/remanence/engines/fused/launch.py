"""Running the kernels: buffers, launches, and the matrix products before and after.

N replicas, T steps, B rows, I inputs, H units, G blocks. A single replica comes without the leading N.

Everything here runs on every call, and a short sequence takes hardly longer than the host needs to start it: no tensor
operation that can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..machine import matrix_products
from . import by_steps, cells, direct, gates, plan
from .kernels import backward_kernel, forward_kernel

HALVED_FROM = 256
"""From so many units on a forward pass in TF32 takes its factors in 16 bits, see `halved`."""


@dataclass(frozen=True)
class Kind:
    """Which kernel, apart from sizes."""

    cell: str
    gate: str
    blocks: int
    split: int
    """Index of the block whose recurrent part is kept apart (the GRU's candidate), or -1."""
    coupled: bool
    beta: float
    eps: float
    fixed_p: float
    """Exponent of all units, where it is not learned."""
    reverse: bool
    precision: str
    """Of float32 products: "tf32", or "tf32x3" for full float32."""

    @property
    def has_age(self) -> bool:
        return self.gate == "power_law"

    def bytes_on_chip(self, matrix: Tensor) -> int:
        """Of an entry of the matrix: full float32 keeps two TF32 numbers for it."""
        twice = matrix.dtype == torch.float32 and self.precision == "tf32x3"
        return matrix.element_size() * (2 if twice else 1)


class Given(NamedTuple):
    """What a pass starts from, H a multiple of 16, all contiguous."""

    inputs: Tensor
    """`(N, T, B, I)`."""
    weight_ih: Tensor
    """`(N, G H, I)`."""
    weight_hh: Tensor
    """`(N, G H, H)`; as `halved` made it where there is a scale."""
    bias_ih: Tensor | None
    """`(N, G H)`."""
    bias_hh: Tensor | None
    """`(N, G H)`."""
    p_hat: Tensor | None
    """`(N, H)`."""
    dt: Tensor | None
    """`(N, T, B)` float32."""
    lengths: Tensor | None
    """`(N, B)` int32."""
    hidden: Tensor | None
    """`(N, B, H)` in the dtype of the inputs; None for a state of zeros."""
    cell: Tensor | None
    """`(N, B, H)`; of the GRU, which has no cell, the hidden state once more."""
    age: Tensor | None
    """`(N, B, H)`."""


class Kept(NamedTuple):
    """What the backward pass needs of the forward pass, `(N, T, B, ...)`."""

    outputs: Tensor
    pre: Tensor | None
    cells: Tensor | None
    ages: Tensor | None
    parts: Tensor | None


class Final(NamedTuple):
    """State after the last step, `(N, B, H)` float32 each, or derivatives by it."""

    hidden: Tensor | None
    cell: Tensor | None
    age: Tensor | None


class Wanted(NamedTuple):
    """Derivatives that somebody asked for. Those by weights are always computed."""

    inputs: bool
    dt: bool
    state: bool


class Slopes(NamedTuple):
    """Derivatives; None where they were not wanted or do not exist."""

    inputs: Tensor | None
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor
    p_hat: Tensor | None
    dt: Tensor | None
    hidden: Tensor | None
    cell: Tensor | None
    age: Tensor | None


def forward(kind: Kind, given: Given, scale: Tensor | None, save: bool) -> tuple[Kept, Final]:
    """All h_t, and, if `save`, what the backward pass needs; the state after the last step.

    Args:
        kind: which kernel.
        given: what it starts from.
        scale: of the recurrent matrix, see `halved`.
        save: whether there will be a backward pass.
    """
    inputs, weight_hh = given.inputs, given.weight_hh
    *lead, steps, rows, _ = inputs.shape
    replicas = lead[0] if lead else 1
    units = weight_hh.shape[-1]
    new = partial(torch.empty, dtype=torch.float32, device=inputs.device)
    with matrix_products(kind.precision == "tf32"):
        pre = _product(inputs.flatten(-3, -2), given.weight_ih.mT)
    shape, state = (*lead, steps, rows, units), (*lead, rows, units)
    outputs = torch.empty(shape, dtype=inputs.dtype, device=inputs.device)
    kept = Kept(
        outputs,
        pre if save else None,
        new(shape) if save else None,
        new(shape) if save and kind.has_age else None,
        new(shape) if save and kind.split >= 0 else None,
    )
    final = Final(new(state), new(state), new(state) if kind.has_age else None)
    if not rows:
        return kept, final
    on = plan.chip(inputs.device)
    tiles = plan.make(units, rows, replicas, kind.blocks, kind.bytes_on_chip(weight_hh), False, on)
    groups = replicas * -(-rows // tiles.row_tile)
    counters = torch.zeros(groups, 32, dtype=torch.int32, device=inputs.device)
    hidden = outputs.new_zeros(state) if given.hidden is None else given.hidden

    tensors = (pre, weight_hh, scale, *given[3:8], hidden, *given[9:], outputs, *kept[2:], *final, counters)

    def start(tiles: plan.Plan) -> None:
        for first, grid in _launches(groups, tiles, units):
            numbers = (first, steps, rows, units, kind.eps, kind.fixed_p)
            direct.start(forward_kernel, _forward_constants, (kind, tiles, units, save), grid, tensors, numbers)

    def step_by_step(tiles: plan.Plan) -> None:
        numbers = (0, steps, rows, units, kind.eps, kind.fixed_p)
        by_steps.forward(tiles, _forward_constants, (kind, tiles, units, save, True), tensors, numbers, kind.reverse)

    _run(tiles, start, step_by_step, inputs.device)
    return kept, final


def _run(
    tiles: plan.Plan,
    start: Callable[[plan.Plan], None],
    step_by_step: Callable[[plan.Plan], None],
    device: torch.device,
) -> None:
    """Start a pass; step by step where the driver takes nothing else."""
    if not by_steps.is_needed(device):
        try:
            return plan.fitted(tiles, start)
        except plan.RefusedError as refusal:  # before anything was done: the first launch is the largest
            by_steps.note(device, refusal)
    return plan.fitted(tiles, step_by_step)


def backward(
    kind: Kind,
    given: Given,
    scale: Tensor | None,
    kept: Kept,
    d_outputs: Tensor | None,
    d_final: Final,
    wanted: Wanted,
    overwrite: bool,
    real: int | None = None,
) -> Slopes:
    """Derivatives by everything that was given.

    Args:
        kind: which kernel.
        given: what the forward pass started from.
        scale: of the recurrent matrix, see `halved`.
        kept: what it kept.
        d_outputs: derivative by all h_t, `(N, T, B, H)`; None for zero.
        d_final: derivatives by the last state, None for zero.
        wanted: which derivatives to compute.
        overwrite: whether what was kept may be overwritten, which saves most of the memory of this pass.
        real: how many units are no padding: derivatives by the matrices come without it.
    """
    inputs = given.inputs
    units = given.weight_hh.shape[-1]
    d_pre, d_parts, d_p_hat, d_dt, d_state = _through_time(
        kind, given, scale, kept, d_outputs, d_final, wanted, overwrite and inputs.dtype == torch.float32
    )
    with matrix_products(kind.precision == "tf32"):
        d_inputs = _times(d_pre, given.weight_ih).view(inputs.shape) if wanted.inputs else None
        real = units if real is None else real
        d_weight_ih = _by_block(d_pre, inputs.flatten(-3, -2), kind.blocks, real)
        d_weight_hh = _recurrent(d_pre, kept.outputs, given.hidden, kind, kind.blocks, real)
        d_bias_ih = d_bias_hh = d_pre.sum(-2, dtype=torch.float32)
        if d_parts is not None:
            flat = d_parts.flatten(-3, -2)
            own = slice(kind.split * real, (kind.split + 1) * real)
            d_weight_hh[..., own, :] = _recurrent(flat, kept.outputs, given.hidden, kind, 1, real)
            block = slice(kind.split * units, (kind.split + 1) * units)
            d_bias_hh = d_bias_ih.clone()
            d_bias_hh[..., block] = flat.sum(-2, dtype=torch.float32)
    return Slopes(d_inputs, d_weight_ih, d_weight_hh, d_bias_ih, d_bias_hh, d_p_hat, d_dt, *d_state)


def _through_time(
    kind: Kind,
    given: Given,
    scale: Tensor | None,
    kept: Kept,
    d_outputs: Tensor | None,
    d_final: Final,
    wanted: Wanted,
    overwrite: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Final]:
    """The part of the backward pass that goes from step to step; arguments as there.

    What only this part needs is gone when it returns: the products after it need as much memory again.

    Returns:
        Derivatives by the pre-activations, by the GRU's recurrent part of the candidate, by p_hat, by dt, and by the
        first state.
    """
    inputs, dt = given.inputs, given.dt
    *lead, steps, rows, _ = inputs.shape
    replicas = lead[0] if lead else 1
    units = given.weight_hh.shape[-1]
    pre, parts = kept.pre, kept.parts
    assert pre is not None
    new = partial(torch.empty, dtype=torch.float32, device=inputs.device)
    d_pre = pre if overwrite else torch.empty_like(pre, dtype=inputs.dtype)
    d_parts = None
    if parts is not None:
        d_parts = parts if overwrite else torch.empty_like(parts, dtype=inputs.dtype)
    state = (*lead, rows, units)
    d_hidden, d_cell = (new(state) if wanted.state else None for _ in range(2))
    d_age = new(state) if wanted.state and kind.has_age else None
    d_state = Final(d_hidden, d_cell, d_age)
    if not rows:
        d_p_hat = None if given.p_hat is None else torch.zeros_like(given.p_hat)
        return d_pre, d_parts, d_p_hat, torch.zeros_like(dt) if wanted.dt and dt is not None else None, d_state
    weight_hh = widened(given.weight_hh, scale)
    on = plan.chip(inputs.device)
    tiles = plan.make(units, rows, replicas, kind.blocks, kind.bytes_on_chip(weight_hh), True, on)
    unit_tiles = tiles.unit_tiles(units)
    groups = replicas * -(-rows // tiles.row_tile)
    counters = torch.zeros(groups, 32, dtype=torch.int32, device=inputs.device)
    shares = None if tiles.alone else new(2 * groups * unit_tiles * tiles.row_tile * units)
    d_p_hat = None if given.p_hat is None else new(*lead, groups // replicas, units)
    d_dt = new((unit_tiles, *lead, steps, rows)) if wanted.dt else None

    tensors = (
        *(pre, weight_hh, given.p_hat, dt, given.lengths, given.cell, given.age, *kept[2:], d_outputs, *d_final),
        *(d_pre, d_parts, *d_state, d_p_hat, d_dt, shares, counters),
    )

    def start(tiles: plan.Plan) -> None:
        for first, grid in _launches(groups, tiles, units):
            numbers = (first, groups, steps, rows, units, kind.eps, kind.fixed_p)
            direct.start(backward_kernel, _backward_constants, (kind, tiles, units), grid, tensors, numbers)

    def step_by_step(tiles: plan.Plan) -> None:
        numbers = (0, groups, steps, rows, units, kind.eps, kind.fixed_p)
        by_steps.backward(tiles, _backward_constants, (kind, tiles, units, True), tensors, numbers, kind.reverse)

    _run(tiles, start, step_by_step, inputs.device)
    d_p_hat = None if d_p_hat is None else d_p_hat.sum(-2)
    return d_pre, d_parts, d_p_hat, None if d_dt is None else d_dt.sum(0), d_state


def _recurrent(d_pre: Tensor, outputs: Tensor, hidden: Tensor | None, kind: Kind, blocks: int, real: int) -> Tensor:
    """The sum over steps of d_pre_t^T h_{t-1}, with d_pre `(N, T B, ...)`."""
    rows = outputs.shape[-2]
    h = outputs.flatten(-3, -2)[..., :real]
    count = h.shape[-2] - rows
    if kind.reverse:
        later, before, first = d_pre[..., :count, :], h[..., rows:, :], d_pre[..., count:, :]
    else:
        later, before, first = d_pre[..., rows:, :], h[..., :count, :], d_pre[..., :rows, :]
    total = _by_block(later, before, blocks, real)
    if hidden is not None:
        total += _by_block(first, hidden[..., :real], blocks, real)
    return total


def _by_block(d_pre: Tensor, factors: Tensor, blocks: int, units: int) -> Tensor:
    """d_pre^T factors, of the first `units` of every block, `(N, G units, ...)`."""
    width = d_pre.shape[-1] // blocks
    if width == units:
        return _times(d_pre.mT, factors)
    total = factors.new_empty(*factors.shape[:-2], blocks * units, factors.shape[-1])
    for block in range(blocks):
        part = d_pre[..., block * width : block * width + units].mT
        total[..., block * units : (block + 1) * units, :] = _times(part, factors)
    return total


def halved(kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
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
    """What `halved` returned as the backward pass takes it: float32, in numbers that TF32 has.

    The tensor cores would cut digits off others. Of small matrices the kernel sees to that itself.
    """
    return matrix if scale is None else matrix.float().mul_(scale)


def _times(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, of all replicas."""
    return torch.mm(a, b) if a.dim() == 2 else torch.bmm(a, b)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32, from factors that may be narrower."""
    if a.dtype == torch.float32:
        return _times(a, b)
    if not a.is_cuda:
        return _times(a.float(), b.float())
    return torch.mm(a, b, out_dtype=torch.float32) if a.dim() == 2 else torch.bmm(a, b, out_dtype=torch.float32)


def _launches(groups: int, tiles: plan.Plan, units: int) -> Iterator[tuple[int, tuple[int]]]:
    """First group and grid of every launch: whole groups, and never more programs than can run at the same time."""
    unit_tiles = tiles.unit_tiles(units)
    per_launch = max(1, tiles.at_once // unit_tiles) if not tiles.alone else groups
    for first in range(0, groups, per_launch):
        yield first, (min(per_launch, groups - first) * unit_tiles,)


def _forward_constants(kind: Kind, tiles: plan.Plan, units: int, save: bool, one_step: bool = False) -> dict[str, Any]:
    return {
        "CELL": cells.DEVICE[kind.cell][0],
        "GATE": gates.DEVICE[kind.gate][0],
        "SAVE": save,
        **_constants(kind, tiles, units, one_step),
    }


def _backward_constants(kind: Kind, tiles: plan.Plan, units: int, one_step: bool = False) -> dict[str, Any]:
    return {
        "CELL_SLOPES": cells.DEVICE[kind.cell][1],
        "CELL_BACK": cells.DEVICE[kind.cell][2],
        "GATE_SLOPES": gates.DEVICE[kind.gate][1],
        "GATE_BACK": gates.DEVICE[kind.gate][2],
        "BY_STEPS": one_step,
        **_constants(kind, tiles, units, one_step),
    }


def _constants(kind: Kind, tiles: plan.Plan, units: int, one_step: bool) -> dict[str, Any]:
    return {
        "G": kind.blocks,
        "SPLIT": kind.split,
        "COUPLED": kind.coupled,
        "BETA": kind.beta,
        "HAS_AGE": kind.has_age,
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
