"""One step of a few sequences as a single call of compiled code, with the weights where they are.

A step of one sequence takes no longer than what Python does around it: every call and every tensor counts here.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from copy import copy
from functools import partial
from struct import Struct
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from ...cells import Cell, GatedCell, Weights
from .. import loop
from ..check import Sizes, make_task, undisturbed, widened
from ..kernels.contract import Kind, derivation
from ..kernels.machine_code import CompilerError, cell_sources, joined
from ..kernels.run import kind_of
from ..transforms import PLAIN
from .compiler import library, step_sources
from .engine import lacks, name

FEW = 16
"""Sequences up to which going through the weights once for each is faster than preparing a product."""
SHARE = 2**20
"""Multiplications for every thread: with less, one is done before another has woken up."""
NEAR = 1e-4
"""How near a compiled step has to be to the equation in float64: a wrong formula is off by 1e-2 or more."""

State = tuple[Tensor, ...]


class Compiled(NamedTuple):
    """The step of a cell."""

    function: Callable[[bytes], None]
    layout: Struct
    """Of what it is given, see one_step.cpp."""
    blocks: int
    parts: int
    """Of the state."""
    own: tuple[str, ...]
    """Names of weights of its own, or of its gate's."""
    beta: float
    twice: bool
    """Whether the hidden state takes part in the update."""


def one_step(cell: Cell, weights: Weights, inputs: Tensor, state: State | None, dt: Tensor | None) -> State | None:
    """The state after a step, or None where something is not as compiled code takes it.

    Args:
        cell: what runs.
        weights: by name.
        inputs: `(..., I)`, a few sequences.
        state: `(..., width)` each; None for zeros.
        dt: `(...)`, or None for unit steps.
    """
    weight_ih, weight_hh = weights["weight_ih"], weights["weight_hh"]
    (height, width), shape, features = weight_hh.shape, inputs.shape, weight_ih.shape[1]
    rows = inputs.numel() // max(1, features)
    if not inputs.is_cpu or inputs.dtype is not torch.float32 or inputs.layout is not torch.strided:
        return None
    if not 0 < rows <= FEW or shape[-1] != features or weight_ih.shape[0] != height:
        return None
    step = (cell.__dict__.get("_one_step") or _steps_of(cell))[dt is not None]
    if step is None:
        return None
    units, matrix = height // step.blocks, weights.get("weight_hr")
    if height != units * step.blocks:
        return None
    if (width != units) if matrix is None else (step.twice or matrix.shape != (width, units)):
        return None
    bias_ih, bias_hh, own = weights.get("bias_ih"), weights.get("bias_hh"), [weights[each] for each in step.own]
    for vectors, size in (
        ((bias_ih, bias_hh), height),
        (own, units),
        ((dt,), rows),
    ):  # it reads all of what they promise
        for vector in vectors:
            if vector is not None and vector.numel() != size:
                return None
    given = [inputs, weight_ih, weight_hh, bias_ih, bias_hh, dt, *own]
    if state is None:
        given += [None] * step.parts
    else:
        if len(state) != step.parts or state[0].shape != (*shape[:-1], width):
            return None
        for part in state[1:]:
            if part.shape != (*shape[:-1], units):
                return None
        given += state
    addresses = []
    for tensor in given:
        if tensor is None:
            addresses.append(0)
        elif (
            type(tensor) in PLAIN
            and tensor.dtype is torch.float32
            and tensor.is_cpu
            and tensor.is_contiguous()
            and not tensor.is_neg()
        ):
            addresses.append(tensor.data_ptr())
            if not addresses[-1]:  # of a tensor without memory
                return None
        else:
            return None
    after = [inputs.new_empty((*shape[:-1], units)) for _ in range(step.parts)]
    addresses += [part.data_ptr() for part in after]
    many = max(1, min(rows * height * (features + width) // SHARE, torch.get_num_threads()))
    step.function(step.layout.pack(rows, features, units, width, many, step.beta, *addresses))
    if matrix is not None:
        after[0] = linear(after[0], matrix)
    return tuple(after)


class _Steps(dict[bool, Compiled | None]):
    """Of a cell, without and with dt, compiled when they are first asked for; a copy of the cell has none of them."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def __missing__(self, has_dt: bool) -> Compiled | None:
        self[has_dt] = found = _step_of(self.cell, has_dt)
        return found

    def __reduce__(self) -> tuple[type[dict[bool, None]], tuple[()]]:
        return dict, ()


def _steps_of(cell: Cell) -> _Steps:
    found = _Steps(cell)
    object.__setattr__(cell, "_one_step", found)  # beside the fields: cells do not change
    return found


_known: dict[tuple[Kind, bool], Compiled | None] = {}


def _step_of(cell: Cell, has_dt: bool) -> Compiled | None:
    """The step of a cell; None where it cannot be had."""
    if not isinstance(cell, GatedCell) or lacks() is not None:
        return None
    known = derivation(cell)
    if (has_dt and not cell.takes_dt) or known.float32[has_dt] is not None or any(known.single):
        return None
    key = kind_of(cell, False, "tf32", name), has_dt
    if key not in _known:
        _known[key] = _compiled(cell, *key)
    return _known[key]


def _compiled(cell: GatedCell, kind: Kind, has_dt: bool) -> Compiled | None:
    parts = len(cell.widths(1, 1))
    text = joined(step_sources(cell_sources(kind.derived(has_dt)), "one_step.cpp"))
    constants = kind.constants() | {"ACTIVATED": 0, "HAS_DT": int(has_dt), "CELLS": int(not derivation(cell).twice)}
    try:
        found = library(text, constants, ("one_step",))
    except CompilerError:
        return None
    found.one_step.argtypes = (ctypes.c_char_p,)
    found.one_step.restype = None
    layout = Struct(f"@5qd{6 + kind.own + 2 * parts}P")
    step = Compiled(found.one_step, layout, kind.blocks, parts, derivation(cell).own, kind.beta, derivation(cell).twice)
    if _agrees(step, cell, has_dt):
        return step
    warnings.warn(f"a compiled step of {cell} disagrees with the loop engine; another way is used", stacklevel=2)
    return None


def _agrees(step: Compiled, cell: GatedCell, has_dt: bool) -> bool:
    """Whether it does what the equation says, on numbers of its own."""
    device = torch.device("cpu")
    with undisturbed(device), torch.no_grad():
        task = make_task(cell, Sizes(1, 2, 75, 133), torch.float32, device, irregular=has_dt)
        tried = copy(cell)
        _steps_of(tried)[has_dt] = step
        dt = None if task.dt is None else task.dt[0]
        after, truth = (
            one_step(tried, task.weights, task.inputs[0], task.first_state, dt),
            loop.run(widened(task)).state,
        )
        near = partial(torch.allclose, rtol=NEAR, atol=NEAR, equal_nan=True)
        return all(near(part.double(), true) for part, true in zip(after or (), truth, strict=True))
