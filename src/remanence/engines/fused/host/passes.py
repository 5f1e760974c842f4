"""The recurrence by compiled steps: what they are given, and going through them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..blocks import padded
from ..clusters.compiler import CompilerError
from ..launch import Found
from .compiler import PRODUCTS, STEPS, because, library, source

if TYPE_CHECKING:
    from ..launch import Derivatives, Final, Given, Kept, Kind

FEW = 2**12
"""Units of all sequences, and of all steps between products of torch, below which one thread is done before another
has woken up."""
FITS = 3 * 2**17
"""Numbers of the recurrent matrix up to which each processor has room for all of it next to it. Then it goes through
all steps of its sequences by itself, products with the matrix too; with a larger one, torch's products take turns with
steps."""
TOGETHER = 2**20
"""Pre-activations of some steps that are computed at once from the inputs. Memory that is new for every sequence would
take longer to have than to fill; and what the steps find here is still next to the processor."""

_new = partial(torch.empty, dtype=torch.float32, device="cpu")
_zeros = partial(torch.zeros, dtype=torch.float32, device="cpu")


def alignment(kind: Kind, given: Given) -> int:
    """What the number of units has to be a multiple of, see `launch.Recurrence`."""
    return 1


def narrow(kind: Kind, given: Given) -> int:
    """All inputs are multiplied on the way, see `launch.Recurrence`."""
    return given.inputs.shape[-1]


def keeps_before(kind: Kind, given: Given) -> bool:
    """Whether all h_{t-1} are kept, which they are not."""
    return False


def split(kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """The recurrent matrix as it is."""
    return matrix, None


def forward(kind: Kind, given: Given, scale: Tensor | None, pre: Tensor | None, kept: Kept, final: Final) -> None:
    """All steps; fills what it is given, see `launch.forward`."""
    steps, rows, _ = given.inputs.shape
    units, width, save = given.weight_hh.shape[-1], given.weight_hh.shape[0], kept.pre is not None
    some = min(steps, -(-TOGETHER // (rows * width)))
    room = _new(some * rows, width) if pre is None else pre
    cells = _new(2, rows, units) if kept.cells is None else kept.cells
    ages = _new(2, rows, units) if kind.has_age and kept.ages is None else kept.ages
    hidden, *first_state = _first_state(given, rows, units)
    product = _new(rows, width)
    common, own = (room, kept.parts, cells, ages, *first_state), (product, *_biases(kind, given, units))
    packed = _Packed(kind, given, common, (*own, hidden, kept.outputs))
    functions = _functions(kind, given.dt is not None)
    whole, matrix = _is_whole(given), given.weight_hh.t()
    matrix = _panels(matrix) if whole else matrix.contiguous()
    before = [] if whole else [hidden, *kept.outputs.unbind()[:: -1 if kind.reverse else 1]]
    inputs = given.inputs.flatten(0, 1)
    for begin in range(0, steps, some):
        end = min(begin + some, steps)
        first = steps - end if kind.reverse else begin
        these = slice(first * rows, (first + end - begin) * rows)
        torch.mm(inputs[these], given.weight_ih.t(), out=room[these] if save else room[: (end - begin) * rows])
        first_of_room = 0 if save else first
        if whole:
            functions.forward_all(
                packed.address, _products().multiply, _address(matrix), begin, end, first_of_room, save
            )
            continue
        for s in range(begin, end):
            torch.mm(before[s], matrix, out=product)
            functions.forward(packed.address, s, first_of_room, save)
    last = 0 if kind.reverse else steps - 1
    slot = last if save else (steps - 1) % 2
    for place, values in zip(final, (kept.outputs, cells, ages), strict=True):
        if place is not None and values is not None:
            place.copy_(values[last if values is kept.outputs else slot])


def backward(kind: Kind, given: Given, scale: Tensor | None, kept: Kept, by: Derivatives) -> Found:
    """All steps back; fills what it is given, see `launch.backward`."""
    steps, rows, _ = given.inputs.shape
    matrix, d_pre, d_parts = given.weight_hh, by.pre, by.parts
    width, units = matrix.shape
    assert kept.pre is not None
    zeros, *first = _first_state(given, rows, units, hidden=False)
    from_later, d_cell, d_age = (_zeros(rows, units) if part is None else part.clone() for part in by.final)
    d_p = _zeros(rows, units) if kind.has_age else None
    d_step = _new(rows, units) if given.dt is not None else None
    d_dt = _new(steps, rows) if by.wants_dt else None
    d_product = _new(rows, width) if kind.split >= 0 else None
    held = _new(rows, units) if given.lengths is not None else None
    common = (kept.pre, kept.parts, kept.cells, kept.ages, *first)
    own = (by.outputs, zeros, from_later, d_cell, d_age, d_p, d_step, d_pre, d_parts, d_product, held)
    packed = _Packed(kind, given, common, own)
    functions = _functions(kind, given.dt is not None)
    if _is_whole(given):
        matrix = _panels(matrix)
        functions.backward_all(packed.address, _products().multiply, _address(matrix), _address(d_dt))
    else:
        rows_of_steps = d_pre.view(steps, rows, width).unbind()
        for s, t in enumerate(range(steps) if kind.reverse else range(steps - 1, -1, -1)):
            functions.backward(packed.address, s)
            torch.mm(rows_of_steps[t] if d_product is None else d_product, matrix, out=from_later)
            if held is not None:
                from_later.add_(held)
            if d_dt is not None and d_step is not None:
                torch.sum(d_step, -1, out=d_dt[t])
    for place, value in zip(by.state, (from_later, d_cell, d_age), strict=True):
        if place is not None:
            place.copy_(value)
    d_p_hat = None
    if given.p_hat is not None and d_p is not None:
        p = given.p_hat.sigmoid()
        d_p_hat = d_p.sum(0) * p * (1 - p)
    ones = d_pre.new_ones(steps * rows)  # sums as products: several times as fast as `sum`
    return Found(
        d_p_hat,
        d_dt,
        bias=torch.mv(d_pre.flatten(0, -2).t(), ones),
        bias_hn=None if d_parts is None else torch.mv(d_parts.flatten(0, -2).t(), ones),
    )


def _is_whole(given: Given) -> bool:
    """Whether all steps are one call."""
    return given.weight_hh.numel() <= FITS


def _panels(matrix: Tensor) -> Tensor:
    """As products.cpp has it: some columns, one row after the other, and after these the next."""
    inner, width = matrix.shape
    columns = _products().columns()
    return padded(matrix, (0, -width % columns)).reshape(inner, -1, columns).transpose(0, 1).contiguous()


def _first_state(given: Given, rows: int, units: int, hidden: bool = True) -> list[Tensor]:
    """Hidden state, or zeros if that is not asked for, cell and age before the first step."""
    zeros = _zeros(rows, units)
    parts = (given.hidden if hidden else None, given.cell, given.age)
    return [zeros if part is None else part.float() for part in parts]


class _Packed:
    """What a pass works on, as `steps.cpp` has it: a structure of numbers and addresses, and the tensors they are of.

    Args:
        kind: which steps.
        given: what they start from.
        common: tensors that both passes have, from pre-activations to the first age.
        own: those that one of them has.
    """

    def __init__(self, kind: Kind, given: Given, common: Sequence[Tensor | None], own: Sequence[Tensor | None]) -> None:
        steps, rows, _ = given.inputs.shape
        units = given.weight_hh.shape[-1]
        between = steps if _is_whole(given) else 1
        many = min(torch.get_num_threads(), rows) if between * rows * units >= FEW else 1
        numbers = (steps, rows, units, many, kind.reverse, kind.eps, kind.beta)
        p = None
        if kind.has_age:
            p = _new(units).fill_(kind.fixed_p) if given.p_hat is None else given.p_hat.float().sigmoid()
        self.tensors = (*common, p, given.dt, given.lengths, *own)
        addresses = map(_address, self.tensors)
        self.address = ctypes.create_string_buffer(struct.pack(f"@5q2d{len(self.tensors)}P", *numbers, *addresses))


def _address(tensor: Tensor | None) -> int:
    """Where its numbers are, one after the other: hooks of saved tensors may have left them otherwise."""
    if tensor is None:
        return 0
    found = tensor.data_ptr()
    plain = tensor.dtype in (torch.float32, torch.int32) and tensor.is_cpu and not tensor.is_neg()
    if plain and tensor.is_contiguous() and (found or not tensor.numel()):
        return found
    got = f"one of {tensor.dtype} on {tensor.device} with strides {tensor.stride()} for {tuple(tensor.shape)}"
    raise RuntimeError(f'expected a contiguous tensor of float32 on the CPU, got {got}: engine="loop" takes any')


def _biases(kind: Kind, given: Given, units: int) -> tuple[Tensor, Tensor | None]:
    """What is added to the blocks, and to the recurrent part of the candidate where there is one."""
    none = _zeros(kind.blocks * units) if given.bias_ih is None or given.bias_hh is None else None
    bias_ih, bias_hh = (none if bias is None else bias.float() for bias in (given.bias_ih, given.bias_hh))
    assert bias_ih is not None
    assert bias_hh is not None
    both = bias_ih + bias_hh
    if kind.split < 0:
        return both, None
    own = slice(kind.split * units, (kind.split + 1) * units)
    both[own] = bias_ih[own]
    return both, bias_hh[own]


@cache
def failure(kind: Kind, has_dt: bool) -> str | None:
    """Why the steps of a kind cannot be had, as the end of a sentence."""
    try:
        _functions(kind, has_dt)
        _products()
    except CompilerError as error:
        return because(error)
    return None


@cache
def _functions(kind: Kind, has_dt: bool) -> ctypes.CDLL:
    """The steps of a kind."""
    own = {"ACTIVATED": int(kind.cell == "lstm"), "HAS_DT": int(has_dt)}
    found = library(source(STEPS), kind.constants() | own)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.forward.argtypes = (pointer, number, number, ctypes.c_int)
    found.backward.argtypes = (pointer, number)
    found.forward_all.argtypes = (pointer, pointer, pointer, number, number, number, ctypes.c_int)
    found.backward_all.argtypes = (pointer, pointer, pointer, pointer)
    return found


@cache
def _products() -> ctypes.CDLL:
    """The products, which are the same for all kinds."""
    return library(source(PRODUCTS))
