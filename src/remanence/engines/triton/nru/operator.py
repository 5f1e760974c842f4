"""The NRU kernels as torch operators: the matmuls before and after the kernels, and autograd.

Shapes and names are those of `kernels`; the replica dimension N is always present.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....cells import NRUCell
from ...base import EngineTask
from ...double_backward import Fields, by_the_loop, differentiable
from ...kernels import products
from ...kernels.layout import Blocks
from ...kernels.operator import no_second_derivative
from ...machine import lacking, matrix_products
from .. import starting, tiling

ROWS = 16
"""Rows of a tile: the minimum for tensor cores."""
NARROW = 128
"""Number of units up to which four warps are faster than eight."""
TILES = ((256, 32, 3), (128, 32, 3), (64, 32, 2), (32, 16, 1))
"""Columns and depth of a matmul tile, and number of pipeline stages; the first that fits into shared memory is used."""
EXCHANGED = 2**15
"""Bytes of shared memory for data that threads exchange."""
KEPT = 210_000
"""Largest size of the matrices in bytes for which `kept` is used, if they fit into shared memory."""
WIDE = 512
"""Number of units above which `wide` is used, in float32."""
WIDE_ROWS, MOST_COLUMNS = 1, 4096
"""Rows of a program in `wide`, few for many programs, and units that it processes at a time."""
AT_A_TIME = 512 * ROWS
"""Number of values that a program processes at a time."""

MOST_FACTORED = 1024
"""Largest memory for the factored form, which processes all entries at once; more would spill registers."""


class Given(NamedTuple):
    """Operands of both passes."""

    inputs: Tensor
    """`(N, T, B, I)`, in the order of steps."""
    weight_ih: Tensor
    weight_hh: Tensor
    weight_mh: Tensor
    weight_write: Tensor
    bias_ih: Tensor | None
    bias_write: Tensor | None
    hidden: Tensor
    """`(N, B, H)` in the dtype of the inputs."""
    memory: Tensor
    """`(N, B, M)` float32."""
    lengths: Tensor | None
    """`(N, B)` int32."""


GIVEN = (
    "Tensor inputs, Tensor weight_ih, Tensor weight_hh, Tensor weight_mh, Tensor weight_write, Tensor? bias_ih, "
    "Tensor? bias_write, Tensor hidden, Tensor memory, Tensor? lengths"
)
KIND = "int heads, int side, bool reverse, str precision"
WEIGHTS = ("weight_ih", "weight_hh", "weight_mh", "weight_write", "bias_ih", "bias_write")
FIELDS, PARTS = GIVEN.count(",") + 1, KIND.count(",") + 1
STATES = "Tensor states, Tensor memories, Tensor writes, Tensor norms"


@torch.library.custom_op(
    "remanence::nru_forward", mutates_args=(), schema=f"({GIVEN}, {KIND}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def nru_forward(*arguments: Any) -> tuple[Tensor, ...]:
    """Initial and all hidden states, `(N, T + 1, B, H)`, final memory, all memories, the writes and their norms."""
    given, (heads, side, reverse, precision) = _laid_out(arguments[:FIELDS]), arguments[FIELDS:]
    count, steps, rows, _ = given.inputs.shape
    units, size = given.weight_mh.shape[1:]
    with matrix_products(precision == "tf32"):
        projected = products.by_weight(given.inputs.flatten(1, 2), given.weight_ih)[..., :units].contiguous()
    new = given.memory.new_empty
    states = given.inputs.new_empty(count, steps + 1, rows, units)
    memories = new(count, steps + 1, rows, size)
    states[:, 0], memories[:, 0] = given.hidden, given.memory
    writes, norms = (new(count, steps, rows, width) for width in (given.weight_write.shape[1], 2 * heads))
    tensors = (
        *(projected, *_matrices(given, precision), given.bias_ih, given.bias_write, given.lengths),
        *(states, memories, writes, norms),
    )
    _start("forward", units, given, (heads, side, reverse, precision), tensors)
    return states, memories[:, -1].clone(), memories, writes, norms


@torch.library.custom_op(
    "remanence::nru_backward",
    mutates_args=(),
    schema=f"({GIVEN}, {STATES}, Tensor? d_states, Tensor? d_last, bool needs_inputs, {KIND}) "
    f"-> ({', '.join(['Tensor'] * 9)})",
)
def nru_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Gradients of all operands except the lengths; those of the inputs, which may be large, only if needed."""
    given, (heads, side, reverse, precision) = _laid_out(arguments[:FIELDS]), arguments[-PARTS:]
    states, memories, writes, norms, d_states, d_last, needs_inputs = arguments[FIELDS:-PARTS]
    count, steps, rows, _ = given.inputs.shape
    units = states.shape[-1]
    d_hidden = given.memory.new_zeros(count, rows, units)
    d_memory = torch.zeros_like(given.memory) if d_last is None else d_last.clone(memory_format=torch.contiguous_format)
    d_states = torch.zeros_like(states) if d_states is None else d_states.contiguous()
    d_pre = given.inputs.new_empty(count, steps, rows, units)
    d_writes = given.inputs.new_empty(writes.shape)
    tensors = (
        *(*_matrices(given, precision), given.lengths, states, writes, norms),
        *(d_states, d_hidden, d_memory, d_pre, d_writes, norms.new_empty(count, rows, 2 * heads)),
    )
    _start("backward", units + memories.shape[-1], given, (heads, side, reverse, precision), tensors)
    with matrix_products(precision == "tf32"):
        pre, wrote = d_pre.flatten(1, 2), d_writes.flatten(1, 2)
        before = memories[:, :-1].to(given.inputs.dtype).flatten(1, 2)
        after = states[:, 1:].flatten(1, 2)

        def by_weight(slopes: Tensor, factors: Tensor) -> Tensor:
            return products.derivatives_by_weight(slopes, factors, Blocks(1, slopes.shape[-1], slopes.shape[-1]))

        return (
            torch.bmm(pre, given.weight_ih).view(given.inputs.shape) if needs_inputs else pre.new_empty(0),
            by_weight(pre, given.inputs.flatten(1, 2)),
            by_weight(pre, states[:, :-1].flatten(1, 2)),
            by_weight(pre, before),
            torch.cat((by_weight(wrote, after), by_weight(wrote, before)), -1),
            products.sum_over_rows(pre),
            products.sum_over_rows(wrote),
            d_hidden,
            d_memory,
        )


def _laid_out(fields: Sequence[Tensor | None]) -> Given:
    """Operands made contiguous for the kernels, except the inputs, which only torch multiplies."""
    inputs, *others = fields
    return Given(inputs, *(None if one is None else one.contiguous() for one in others))  # type: ignore[arg-type]


def _matrices(given: Given, precision: str) -> tuple[Tensor, ...]:
    """The recurrent matrix and that of the writes; for TF32 rounded to nearest, because tensor cores truncate."""
    found = (torch.cat((given.weight_hh, given.weight_mh), -1), given.weight_write)
    if precision != "tf32" or given.inputs.dtype != torch.float32:
        return found
    return tuple(((one.detach().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32) for one in found)


def _start(
    name: str, columns: int, given: Given, kind: tuple[int, int, bool, str], tensors: tuple[Tensor | None, ...]
) -> None:
    """Run a pass, forward or backward; its widest matmul has this many columns."""
    from . import kept, kernels, wide

    count, steps, rows, _ = given.inputs.shape
    units, size = given.weight_mh.shape[1:]
    if not rows:
        return
    if given.inputs.dtype == torch.float32 and units > WIDE:
        grid = (count * -(-rows // WIDE_ROWS),)
        getattr(wide, name)(_wide_unit_constants, _wide_write_constants, (*kind, size, units), grid, *tensors)
        return
    kernel, grid, numbers = f"{name}_kernel", (count * -(-rows // ROWS),), (steps, rows, units)
    shared = tiling.chip(given.inputs.device).shared - EXCHANGED
    if _kept_bytes(kind, units, size, given.inputs.itemsize) <= min(KEPT, shared):
        starting.start(getattr(kept, kernel), _kept_constants, (*kind, size, units), grid, tensors, numbers)
        return
    tile = next(tile for tile in TILES if _bytes(tile, given.inputs.itemsize) <= shared or tile is TILES[-1])
    starting.start(getattr(kernels, kernel), _constants, (*kind, size, tile, columns, units), grid, tensors, numbers)


def _kept_bytes(kind: tuple[int, int, bool, str], units: int, size: int, itemsize: int) -> float:
    """Shared memory that the matrices take in `kept`, in bytes; infinite if these kernels cannot run."""
    heads, side, _, precision = kind
    if not _part(side, size):
        return math.inf
    all_units, all_memory, all_writes = _padded(heads, side, size, units)
    split = 2 if precision == "tf32x3" and itemsize == 4 else 1  # in a rounded part and the rest
    return split * itemsize * (all_units + all_memory) * (all_units + all_writes)


def _padded(heads: int, side: int, size: int, units: int) -> tuple[int, int, int]:
    """Sizes of the hidden state, the memory and the writes in `kept`; tensor cores take at least sixteen."""
    return tuple(max(16, tiling.power_of_two(length)) for length in (units, size, 2 * heads + 4 * side))  # type: ignore[return-value]


def _part(side: int, size: int) -> int:
    """Rows of the outer product per head, if every head has whole rows and they fit into registers; otherwise 0."""
    return size // side if size % side == 0 and size <= MOST_FACTORED else 0


def _bytes(tile: tuple[int, int, int], itemsize: int) -> int:
    """Shared memory of a tile in bytes."""
    columns, depth, stages = tile
    return stages * (columns + ROWS) * depth * itemsize


def _constants(
    heads: int,
    side: int,
    reverse: bool,
    precision: str,
    size: int,
    tile: tuple[int, int, int],
    columns: int,
    units: int,
) -> dict[str, Any]:
    power = tiling.power_of_two
    most, depth, stages = tile
    return {
        **_shared_constants(heads, side, reverse, precision, size, ROWS),
        **_at_a_time(heads, side, size, ROWS),
        "COLUMNS": min(most, max(32, power(columns))),
        "DEPTH": depth,
        "num_warps": 4 if units <= NARROW else 8,
        "num_stages": stages,
    }


def _kept_constants(heads: int, side: int, reverse: bool, precision: str, size: int, units: int) -> dict[str, Any]:
    all_units, all_memory, all_writes = _padded(heads, side, size, units)
    return {
        **_shared_constants(heads, side, reverse, precision, size, ROWS),
        "ALL_UNITS": all_units,
        "ALL_MEMORY": all_memory,
        "ALL_WRITES": all_writes,
        "num_warps": 4,
    }


def _wide_unit_constants(heads: int, side: int, reverse: bool, precision: str, size: int, units: int) -> dict[str, Any]:
    """Constants of the ReLU in `wide`."""
    columns = min(MOST_COLUMNS, tiling.power_of_two(units))
    return {
        "U": _whole(units),
        "P": _whole(units + size),
        "ROWS": WIDE_ROWS,
        "COLUMNS": columns,
        "PRECISION": precision,
        "REVERSE": reverse,
        "num_warps": 4 if columns <= 1024 else 8,
    }


def _wide_write_constants(
    heads: int, side: int, reverse: bool, precision: str, size: int, units: int
) -> dict[str, Any]:
    """Constants of the memory writes in `wide`."""
    return {
        **_shared_constants(heads, side, reverse, precision, size, WIDE_ROWS),
        **_at_a_time(heads, side, size, WIDE_ROWS),
        "P": _whole(units + size),
        "V": _whole(2 * heads + 4 * side),
        "num_warps": 4 if _part(side, size) else 8,
    }


def _whole(length: int) -> int:
    """Length of a row in float32 that is padded for tensor cores."""
    return length + lacking(length, 4)


def _at_a_time(heads: int, side: int, size: int, rows: int) -> dict[str, int]:
    """Constants of `general` for programs of this many rows."""
    power, values = tiling.power_of_two, AT_A_TIME // rows
    every, square = power(2 * heads, 1), power(side, 2)
    return {
        "ENTRIES": min(power(size, 1), max(1, values // every)),
        "LEFT": min(square, max(1, values // square)),
    }


def _shared_constants(heads: int, side: int, reverse: bool, precision: str, size: int, rows: int) -> dict[str, Any]:
    """Constants of all forms, for programs of this many rows."""
    power, part = tiling.power_of_two, _part(side, size)
    return {
        "M": size,
        "HEADS": 2 * heads,
        "SIDE": side,
        "ALL_HEADS": power(heads if part else 2 * heads, 1),
        "ALL_SIDE": power(side, 2),  # Triton cannot compile all-ones shapes
        "PART": part,
        "ALL_PART": power(max(part, 1), 1),
        "ROWS": rows,
        "PRECISION": precision,
        "REVERSE": reverse,
    }


@nru_forward.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    given, heads = Given(*arguments[:FIELDS]), arguments[FIELDS]
    count, steps, rows, _ = given.inputs.shape
    units, size = given.weight_mh.shape[1:]
    new = given.memory.new_empty
    return (
        given.inputs.new_empty(count, steps + 1, rows, units),
        new(count, rows, size),
        new(count, steps + 1, rows, size),
        new(count, steps, rows, given.weight_write.shape[1]),
        new(count, steps, rows, 2 * heads),
    )


@nru_backward.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    given, needs_inputs = Given(*arguments[:FIELDS]), arguments[-PARTS - 1]
    biases = (
        given.memory.new_empty(given.inputs.shape[0], one.shape[1]) for one in (given.weight_hh, given.weight_write)
    )
    like = (given.inputs if needs_inputs else given.inputs.new_empty(0), *given[1:5])
    first = (given.memory.new_empty(part.shape) for part in (given.hidden, given.memory))
    return *(one.new_empty(one.shape) for one in like), *biases, *first


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.kind = inputs[FIELDS:]
    states, _, *kept = output
    ctx.save_for_backward(*inputs[:FIELDS], states, *kept)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    needs = ctx.needs_input_grad
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        compute = partial(_by_the_loop, ctx.kind)
        return *differentiable(compute, saved[:FIELDS], needs[:FIELDS], grads[:2]), *(None,) * PARTS
    slopes = nru_backward(*saved, *grads[:2], needs[0], *ctx.kind)
    given = zip(saved, slopes, needs, strict=False)
    found = (slope.to(value.dtype) if needed else None for value, slope, needed in given)
    return *found, *(None,) * (1 + PARTS)


def _by_the_loop(kind: tuple[Any, ...], fields: Fields) -> tuple[Tensor, Tensor]:
    """Initial and all hidden states, and the final memory."""
    given, (heads, _, reverse, _) = Given(*fields), kind  # type: ignore[arg-type]
    weights = {name: value for name, value in given._asdict().items() if name in WEIGHTS and value is not None}
    task = EngineTask(
        NRUCell(given.weight_mh.shape[-1], heads),
        weights,
        given.inputs.flip(-3) if reverse else given.inputs,
        (given.hidden, given.memory),
        lengths=given.lengths,
        reverse=reverse,
    )
    result = by_the_loop(task)
    states = result.output
    if given.lengths is not None:  # kernels repeat the state where a sequence has ended or not begun
        real = torch.arange(states.shape[-3], device=states.device)[:, None] < given.lengths.unsqueeze(-2)
        held = given.hidden if reverse else result.state[0]
        states = torch.where(real.unsqueeze(-1), states, held.unsqueeze(-3))
    states = states.flip(-3) if reverse else states
    return torch.cat((given.hidden.unsqueeze(-3), states), -3), result.state[1]


nru_forward.register_autograd(_differentiate, setup_context=_keep)
nru_backward.register_autograd(no_second_derivative)
