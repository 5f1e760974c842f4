"""One step of a few sequences as a single call of compiled code, with the weights where they are."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from ...cells import Cell, GatedCell, GRUCell, Weights
from .. import loop
from ..check import Sizes, make_task, undisturbed, widened
from ..kernels.contract import Kind, derivation
from ..kernels.derive import cpp
from ..kernels.machine_code import CompilerError, joined
from ..kernels.run import CELLS, kind_of
from ..transforms import PLAIN
from .compiler import library, step_sources
from .engine import lacks, name

FEW = 16
"""Sequences up to which going through the weights once for each is faster than preparing a product."""
ALONE = 2**17
"""Multiplications below which one thread is done before another has woken up."""
NEAR = 1e-4
"""How near a compiled step has to be to the equation in float64: a wrong formula is off by 1e-2 or more."""

State = tuple[Tensor, ...]


def one_step(cell: Cell, weights: Weights, inputs: Tensor, state: State | None, dt: Tensor | None) -> State | None:
    """The state after a step, or None where compiled code cannot take it.

    Args:
        cell: what runs.
        weights: by name.
        inputs: `(..., I)`, a few sequences.
        state: `(..., width)` each; None for zeros.
        dt: `(...)`, or None for unit steps.
    """
    if not 0 < inputs.numel() <= FEW * inputs.shape[-1] or type(cell) not in CELLS:
        return None
    assert isinstance(cell, GatedCell)
    step = _step_of(cell, dt is not None)
    return None if step is None else _call(step, cell.gate.per_unit, weights, inputs, state, dt)


def _call(
    step: _Step,
    own: tuple[str, ...],
    weights: Weights,
    inputs: Tensor,
    state: State | None,
    dt: Tensor | None,
) -> State | None:
    *lead, features = inputs.shape
    rows = inputs.numel() // features
    matrix = weights["weight_hh"]
    height, width = matrix.shape
    units = height // step.blocks
    before = (None,) * step.parts if state is None else state
    given = [inputs, weights["weight_ih"], matrix, weights.get("bias_ih"), weights.get("bias_hh"), dt, before[0]]
    given += [before[step.cell], *(weights[each] for each in own), *before[step.carried :]]
    found = []
    for tensor in given:
        if tensor is None:
            found.append(0)
        elif (
            type(tensor) in PLAIN
            and tensor.dtype is torch.float32
            and tensor.is_cpu
            and tensor.is_contiguous()
            and not tensor.is_neg()
        ):
            found.append(tensor.data_ptr())
        else:
            return None
    hidden = torch.empty(*lead, units, dtype=torch.float32, device="cpu")
    after = (hidden, *(torch.empty_like(hidden) for _ in range(step.parts - 1)))
    many = 1 if rows * height * (features + width) < ALONE else torch.get_num_threads()
    found += [part.data_ptr() for part in after]
    step.function(step.layout.pack(rows, features, units, width, many, step.beta, *found))
    if "weight_hr" in weights:
        return linear(hidden, weights["weight_hr"]), *after[1:]
    return after


class _Step(NamedTuple):
    """A compiled step."""

    function: Callable[[bytes], None]
    layout: Struct
    """Of what it is given, see one_step.cpp."""
    blocks: int
    parts: int
    """Of the state."""
    cell: int
    """Which of them is the cell: of the GRU, which has none, the hidden state."""
    carried: int
    """Which is the first that the gate carries."""
    beta: float


_known: dict[tuple[Kind, bool], _Step | None] = {}


def _step_of(cell: GatedCell, has_dt: bool) -> _Step | None:
    """The step of a cell; None where it cannot be had."""
    if lacks() is not None or derivation(cell).float32[has_dt] is not None:
        return None
    key = kind_of(cell, False, "tf32", name), has_dt
    if key not in _known:
        _known[key] = _compiled(cell, *key)
    return _known[key]


def _compiled(cell: GatedCell, kind: Kind, has_dt: bool) -> _Step | None:
    first = 1 if isinstance(cell, GRUCell) else 2
    constants = kind.constants() | {"ACTIVATED": 0, "HAS_DT": int(has_dt), "CELLS": first - 1}
    try:
        found = library(joined(step_sources(cpp.source(kind.derived(has_dt)), "one_step.cpp")), constants)
    except CompilerError:
        return None
    found.one_step.argtypes = (ctypes.c_char_p,)
    found.one_step.restype = None
    layout = Struct(f"@5qd{8 + kind.own + kind.carried + first + kind.carried}P")
    step = _Step(found.one_step, layout, kind.blocks, first + kind.carried, first - 1, first, kind.beta)
    if _agrees(step, cell, has_dt):
        return step
    warnings.warn(f"a compiled step of {cell} disagrees with the loop engine; another way is used", stacklevel=2)
    return None


def _agrees(step: _Step, cell: GatedCell, has_dt: bool) -> bool:
    """Whether it does what the equation says, on numbers of its own."""
    device = torch.device("cpu")
    with undisturbed(device), torch.no_grad():
        task = make_task(cell, Sizes(1, 2, 21, 37), torch.float32, device, irregular=has_dt)
        dt = None if task.dt is None else task.dt[0]
        after = _call(step, cell.gate.per_unit, task.weights, task.inputs[0], task.first_state, dt)
        assert after is not None
        truth = loop.run(widened(task)).state
        near = partial(torch.allclose, rtol=NEAR, atol=NEAR, equal_nan=True)
        return all(near(part.double(), true) for part, true in zip(after, truth, strict=True))
