"""Runs the recurrence with compiled steps: prepares their arguments and calls them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import torch
from torch import Tensor

from ..kernels.compiling import side_by_side
from ..kernels.contract import Final, Kept, Kind, Operands, RecurrenceGradients, Terms, Upstream
from ..kernels.machine_code import CompilerError, cell_sources, joined
from ..machine import X86
from .compiler import because, library, step_sources
from .products import MOST_INPUTS, address, panels, products
from .weights import compiled_sums, sums_by_torch

FEW = 2**12
"""Units times sequences times steps per call below which one thread is used: it is done before another has woken up."""
FITS = 3 * 2**17
"""Elements of a recurrent matrix that fits into the cache of each core. Then every thread runs all steps of its
sequences by itself, including the matmuls; with a larger matrix, torch's matmuls alternate with compiled steps."""
TOGETHER = 2**20
"""Pre-activations computed from the inputs in one matmul, for some steps at a time. Allocating a buffer for the whole
sequence would take longer than filling it, and a small buffer is still in the cache when the steps read it."""

_new = partial(torch.empty, dtype=torch.float32, device="cpu")
_zeros = partial(torch.zeros, dtype=torch.float32, device="cpu")


def terms(kind: Kind, operands: Operands) -> Terms:
    """Inputs are multiplied during the recurrence, by each step or a few steps at a time, see `contract.Terms`."""
    return Terms(alignment=1, multiplies_inputs=True, keeps_before=False)


def split(kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """The recurrent matrix, unchanged."""
    return matrix, None


def forward(kind: Kind, operands: Operands, scale: Tensor | None, pre: Tensor | None, kept: Kept, final: Final) -> None:
    """Run the forward pass; fills the given tensors, see `contract.Backend`."""
    steps, rows, _ = operands.inputs.shape
    units, width, save = operands.weight_hh.shape[-1], operands.weight_hh.shape[0], kept.pre is not None
    whole, inside = _is_whole(operands), _are_inside(kind, operands)
    some = steps if inside else min(steps, -(-TOGETHER // (rows * width)))
    buffer = _new(some * rows, width) if pre is None and not inside else pre
    cells = _new(2, rows, units) if kept.cells is None else kept.cells
    carried = _new(2, kind.carried, rows, units) if kind.carried and kept.carried is None else kept.carried
    hidden, *first_state = _first_state(operands, rows, units, kind.carried)
    product = _new(rows, width)
    inputs, zeros = (operands.inputs.resolve_neg().contiguous(), _zeros(width)) if inside else (None, None)
    common, own = (buffer, kept.parts, cells, carried, *first_state), (product, *_biases(kind, operands, units))
    functions = _forward(kind, operands.dt is not None, save)
    packed = _Packed(kind, operands, functions, common, (inputs, zeros, *own, hidden, kept.outputs))
    matrix = torch.cat([operands.weight_hh, operands.weight_ih], 1) if inside else operands.weight_hh
    matrix = panels(matrix.t()) if whole else matrix.t().contiguous()
    before = [] if whole else [hidden, *kept.outputs.unbind()[:: -1 if kind.reverse else 1]]
    flat = operands.inputs.flatten(0, 1)
    for begin in range(0, steps, some):
        end = min(begin + some, steps)
        first = steps - end if kind.reverse else begin
        these = slice(first * rows, (first + end - begin) * rows)
        if buffer is not None and not inside:
            torch.mm(flat[these], operands.weight_ih.t(), out=buffer[these] if save else buffer[: (end - begin) * rows])
        first_of_buffer = 0 if save else first
        if whole:
            functions.forward_all(packed.address, products().multiply, address(matrix), begin, end, first_of_buffer)
            continue
        for s in range(begin, end):
            torch.mm(before[s], matrix, out=product)
            functions.forward(packed.address, s, first_of_buffer)
    last = 0 if kind.reverse else steps - 1
    slot = last if save else (steps - 1) % 2
    for place, values in zip(final, (kept.outputs, cells, carried), strict=True):
        if place is not None and values is not None:
            place.copy_(values[last if values is kept.outputs else slot].view_as(place))


def backward(kind: Kind, operands: Operands, scale: Tensor | None, kept: Kept, by: Upstream) -> RecurrenceGradients:
    """Run the backward pass; fills the given tensors, see `contract.Backend`."""
    steps, rows, _ = operands.inputs.shape
    matrix, d_pre, d_parts = operands.weight_hh, by.pre, by.parts
    width, units = matrix.shape
    assert kept.pre is not None
    zeros, *first = _first_state(operands, rows, units, kind.carried, hidden=False)
    from_later, d_cell = (_zeros(rows, units) if part is None else part.clone() for part in by.final[:2])
    d_carried = _zeros(kind.carried, rows, units) if by.final.carried is None else by.final.carried.clone()
    derived = kind.derived(operands.dt is not None)
    d_fixed = _zeros(len(derived.fixed), rows, units) if derived.fixed else None
    d_step = _new(rows, units) if operands.dt is not None else None
    d_dt = _new(steps, rows) if by.wants_dt else None
    d_product = _new(rows, width) if kind.split >= 0 else None
    held = _new(rows, units) if operands.lengths is not None else None
    common = (kept.pre, kept.parts, kept.cells, kept.carried, *first)
    own = (by.outputs, zeros, from_later, d_cell, d_carried, d_fixed, d_step, d_pre, d_parts, d_product, held)
    functions = _backward(kind, operands.dt is not None)
    packed = _Packed(kind, operands, functions, common, own)
    if _is_whole(operands):
        matrix = panels(matrix)
        functions.backward_all(packed.address, products().multiply, address(matrix), address(d_dt))
    else:
        rows_of_steps = d_pre.view(steps, rows, width).unbind()
        for s, t in enumerate(range(steps) if kind.reverse else range(steps - 1, -1, -1)):
            functions.backward(packed.address, s)
            torch.mm(rows_of_steps[t] if d_product is None else d_product, matrix, out=from_later)
            if held is not None:
                from_later.add_(held)
            if d_dt is not None and d_step is not None:
                torch.sum(d_step, -1, out=d_dt[t])
    for place, value in zip(by.state, (from_later, d_cell, d_carried), strict=True):
        if place is not None:
            place.copy_(value.view_as(place))
    d_own = None
    if operands.own is not None:
        weights = operands.own.float().contiguous()
        d_own, sums = torch.empty_like(weights), None if d_fixed is None else d_fixed.sum(1)
        functions.gate_own_all(units, address(weights), address(sums), address(d_own))
    flat = d_pre.flatten(0, -2)
    d_weight_hh = d_weight_ih = None
    if operands.inputs.shape[-1] <= units:
        add_up = compiled_sums if X86 and _is_whole(operands) else sums_by_torch
        d_weight_hh, d_weight_ih, d_bias = add_up(flat, operands.inputs, kept.outputs, operands.hidden, kind.reverse)
    else:
        d_bias = torch.mv(flat.t(), _ones(flat))
    d_parts = None if d_parts is None else d_parts.flatten(0, -2)
    return RecurrenceGradients(
        d_own,
        d_dt,
        weight_ih=d_weight_ih,
        weight_hh=d_weight_hh,
        bias=d_bias,
        bias_hn=None if d_parts is None else torch.mv(d_parts.t(), _ones(d_parts)),
    )


def _ones(values: Tensor) -> Tensor:
    """A vector to sum rows by a matrix-vector product, which takes several times less than `sum`."""
    return values.new_ones(len(values))


def _is_whole(operands: Operands) -> bool:
    """Whether all steps run in one call."""
    return operands.weight_hh.numel() <= FITS


def _are_inside(kind: Kind, operands: Operands) -> bool:
    """Whether every step multiplies its inputs itself. A GRU needs their part of the candidate on its own."""
    return X86 and _is_whole(operands) and kind.split < 0 and operands.inputs.shape[-1] <= MOST_INPUTS


def _first_state(operands: Operands, rows: int, units: int, carried: int, hidden: bool = True) -> list[Tensor]:
    """Initial hidden state (zeros unless `hidden`), cell state and carried values."""
    zeros = _zeros(rows, units)
    found = [zeros if part is None else part.float() for part in (operands.hidden if hidden else None, operands.cell)]
    if not carried:
        return [*found, zeros]
    return [*found, _zeros(carried, rows, units) if operands.carried is None else operands.carried.float()]


class _Packed:
    """The arguments of a pass as a C struct (see `steps.cpp`) of sizes and addresses, with the tensors it points to.

    Args:
        kind: Kind of steps.
        operands: Operands of the recurrence.
        functions: Compiled functions of the pass.
        common: Tensors that both passes have, from pre-activations to initial carried values.
        own: Tensors that only this pass has.
    """

    def __init__(
        self,
        kind: Kind,
        operands: Operands,
        functions: ctypes.CDLL,
        common: Sequence[Tensor | None],
        own: Sequence[Tensor | None],
    ) -> None:
        steps, rows, inputs = operands.inputs.shape
        units = operands.weight_hh.shape[-1]
        between = steps if _is_whole(operands) else 1
        many = min(torch.get_num_threads(), rows) if between * rows * units >= FEW else 1
        numbers = (steps, rows, units, inputs, many, kind.reverse, kind.beta)
        derived, fixed = kind.derived(operands.dt is not None), None
        if derived.fixed and operands.own is not None:
            fixed, weights = _new(len(derived.fixed), units), operands.own.float().contiguous()
            functions.gate_fixed_all(units, address(weights), address(fixed))
        self.tensors = (*common, fixed, operands.dt, operands.lengths, *own)
        addresses = map(address, self.tensors)
        self.address = ctypes.create_string_buffer(struct.pack(f"@6qd{len(self.tensors)}P", *numbers, *addresses))


def _biases(kind: Kind, operands: Operands, units: int) -> tuple[Tensor, Tensor | None]:
    """Biases of all blocks, and that of the candidate's recurrent part if it is separate (GRU)."""
    none = _zeros(kind.blocks * units) if operands.bias_ih is None or operands.bias_hh is None else None
    bias_ih, bias_hh = (none if bias is None else bias.float() for bias in (operands.bias_ih, operands.bias_hh))
    assert bias_ih is not None
    assert bias_hh is not None
    both = bias_ih + bias_hh
    if kind.split < 0:
        return both, None
    own = slice(kind.split * units, (kind.split + 1) * units)
    both[own] = bias_ih[own]
    return both, bias_hh[own]


@cache
def failure(kind: Kind, has_dt: bool, save: bool) -> str | None:
    """Why the steps of a kind cannot be compiled, as the end of a sentence; None if they can.

    Args:
        kind: Kind of steps.
        has_dt: Whether they take dt.
        save: Whether there will be a backward pass.
    """
    needed: list[Callable[[], ctypes.CDLL]] = [partial(_forward, kind, has_dt, save), products]
    if save:
        needed.append(partial(_backward, kind, has_dt))
    try:
        side_by_side(needed)
    except CompilerError as error:
        return because(error)
    return None


@cache
def _forward(kind: Kind, has_dt: bool, save: bool) -> ctypes.CDLL:
    """Compiled steps of the forward pass."""
    types = {
        "gate_fixed_all": (_NUMBER, _POINTER, _POINTER),
        "forward": (_POINTER, _NUMBER, _NUMBER),
        "forward_all": (_POINTER, _POINTER, _POINTER, _NUMBER, _NUMBER, _NUMBER),
    }
    return _steps(kind, has_dt, types, BACKWARD=0, SAVE=int(save))


@cache
def _backward(kind: Kind, has_dt: bool) -> ctypes.CDLL:
    """Compiled steps of the backward pass."""
    types = {
        "gate_fixed_all": (_NUMBER, _POINTER, _POINTER),
        "gate_own_all": (_NUMBER, _POINTER, _POINTER, _POINTER),
        "backward": (_POINTER, _NUMBER),
        "backward_all": (_POINTER, _POINTER, _POINTER, _POINTER),
    }
    return _steps(kind, has_dt, types, BACKWARD=1)


_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64


def _steps(kind: Kind, has_dt: bool, types: Mapping[str, tuple[type, ...]], **constants: int) -> ctypes.CDLL:
    text = joined(step_sources(cell_sources(kind.derived(has_dt))))
    constants |= {"ACTIVATED": int(kind.cell == "lstm"), "HAS_DT": int(has_dt)}
    found = library(text, kind.constants() | constants, tuple(types))
    for name, of in types.items():
        getattr(found, name).argtypes = of
    return found
