"""The recurrence by compiled steps: what they are given, and going through them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..clusters.compiler import CompilerError
from ..launch import Found
from .compiler import because, library, source

if TYPE_CHECKING:
    from ..launch import Derivatives, Final, Given, Kept, Kind

FEW = 2**12
"""Units of all sequences, and of all steps between products of torch, below which one thread is done before another
has woken up."""
SMALL = 2**17
"""Multiplications of a thread in a step up to which all steps are one call, products with the recurrent matrix too:
those of torch take less time by themselves, and more to ask for."""

_new = partial(torch.empty, dtype=torch.float32, device="cpu")
_zeros = partial(torch.zeros, dtype=torch.float32, device="cpu")


def alignment(kind: Kind, given: Given) -> int:
    """What the number of units has to be a multiple of, see `launch.Recurrence`."""
    return 1


def narrow(kind: Kind, given: Given) -> int:
    """No inputs are multiplied on the way, see `launch.Recurrence`."""
    return 0


def keeps_before(kind: Kind, given: Given) -> bool:
    """Whether all h_{t-1} are kept, which they are not."""
    return False


def split(kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """The recurrent matrix as it is."""
    return matrix, None


def forward(kind: Kind, given: Given, scale: Tensor | None, pre: Tensor | None, kept: Kept, final: Final) -> None:
    """All steps; fills what it is given, see `launch.forward`."""
    assert pre is not None
    steps, rows, _ = given.inputs.shape
    units, save = given.weight_hh.shape[-1], kept.pre is not None
    cells = _new(2, rows, units) if kept.cells is None else kept.cells
    ages = _new(2, rows, units) if kind.has_age and kept.ages is None else kept.ages
    hidden, *first = _first_state(given, rows, units)
    product = _new(rows, kind.blocks * units)
    common = (pre, kept.parts, cells, ages, *first)
    packed = _Packed(kind, given, common, (product, *_biases(kind, given, units), hidden, kept.outputs))
    functions = _functions(kind, given.dt is not None)
    matrix = given.weight_hh.t().contiguous()  # twice as fast with few rows
    if _is_small(kind, given):
        functions.forward_all(packed.address, _address(matrix), save)
    else:
        outputs = kept.outputs.unbind()
        for s, after in enumerate(reversed(outputs) if kind.reverse else outputs):
            torch.mm(hidden, matrix, out=product)
            functions.forward(packed.address, s, save)
            hidden = after
    last = 0 if kind.reverse else steps - 1
    slot = last if save else (steps - 1) % 2
    for place, values in zip(final, (kept.outputs, cells, ages), strict=True):
        if place is not None and values is not None:
            place.copy_(values[last if values is kept.outputs else slot])


def backward(kind: Kind, given: Given, scale: Tensor | None, kept: Kept, by: Derivatives) -> Found:
    """All steps back; fills what it is given, see `launch.backward`."""
    steps, rows, _ = given.inputs.shape
    matrix, d_pre, d_parts = given.weight_hh, by.pre, by.parts
    units, width = matrix.shape[-1], kind.blocks * matrix.shape[-1]
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
    if _is_small(kind, given):
        functions.backward_all(packed.address, _address(matrix), _address(d_dt))
    else:
        rows_of_steps = d_pre.view(steps, rows, -1)[..., :width].unbind()
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
        bias=torch.mv(d_pre.flatten(0, -2)[:, :width].t(), ones),
        bias_hn=None if d_parts is None else torch.mv(d_parts.flatten(0, -2).t(), ones),
    )


def _is_small(kind: Kind, given: Given) -> bool:
    rows, units = given.inputs.shape[1], given.weight_hh.shape[-1]
    return -(-rows // torch.get_num_threads()) * kind.blocks * units * units <= SMALL


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
        between = steps if _is_small(kind, given) else 1
        many = torch.get_num_threads() if rows > 1 and between * rows * units >= FEW else 1
        pre_row = 0 if common[0] is None else common[0].shape[-1]
        numbers = (steps, rows, units, pre_row, many, kind.reverse, kind.eps, kind.beta)
        p = None
        if kind.has_age:
            p = _new(units).fill_(kind.fixed_p) if given.p_hat is None else given.p_hat.float().sigmoid()
        self.tensors = (*common, p, given.dt, given.lengths, *own)
        addresses = map(_address, self.tensors)
        self.address = ctypes.create_string_buffer(struct.pack(f"@6q2d{len(self.tensors)}P", *numbers, *addresses))


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
    except CompilerError as error:
        return because(error)
    return None


@cache
def _functions(kind: Kind, has_dt: bool) -> ctypes.CDLL:
    """The steps of a kind."""
    own = {"ACTIVATED": int(kind.cell == "lstm"), "HAS_DT": int(has_dt)}
    found = library(source(), kind.constants() | own)
    found.forward.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int)
    found.backward.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    found.forward_all.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    found.backward_all.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return found
