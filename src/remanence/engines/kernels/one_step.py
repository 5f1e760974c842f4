"""One step of a few sequences as a single call of compiled code, with the weights where they are.

A step of one sequence takes no longer than what Python does around it: every call and every tensor counts here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from ...cells import Cell, PointwiseCell, Weights
from .. import loop
from ..check import Sizes, make_task, undisturbed, widened
from ..transforms import PLAIN
from .contract import Derivation, Kind, derivation
from .machine_code import CompilerError
from .run import kind_of

FEW = 16
"""Sequences up to which going through the weights once for each is faster than preparing a product."""
NEAR = 1e-4
"""How near a compiled step has to be to the equation in float64: a wrong formula is off by 1e-2 or more."""

State = tuple[Tensor, ...]


class StepSizes(NamedTuple):
    """Sizes of a step."""

    rows: int
    inputs: int
    units: int
    width: int
    """Of the hidden state: that of the units, unless it is projected."""


Start = Callable[[StepSizes, list[int]], None]
"""Runs a step of a shape. It is given the addresses of inputs `(B, I)`, weight_ih `(G H, I)`, weight_hh `(G H, W)`,
bias_ih, bias_hh `(G H)`, dt `(B,)`, own weights `(H,)`, the state before, `(B, W)` then `(B, H)`, and the state after,
`(B, H)` each, with room for a copy of the hidden one at the end: 0 for what is not there."""


def constants_of(kind: Kind, known: Derivation, has_dt: bool) -> dict[str, int | str]:
    """What sources of steps leave open."""
    return kind.constants() | {"ACTIVATED": 0, "HAS_DT": int(has_dt), "CELLS": int(not known.twice)}


def count_addresses(kind: Kind, known: Derivation) -> int:
    """How many addresses a step is given, see `Start`."""
    parts = 1 + (not known.twice) + kind.carried
    return 6 + kind.own + 2 * parts + 1


class Compiled(NamedTuple):
    """The step of a cell."""

    start: Start
    blocks: int
    parts: int
    """Of the state."""
    own: tuple[str, ...]
    """Names of weights of its own, or of its gate's."""
    twice: bool
    """Whether the hidden state takes part in the update."""


class Maker(NamedTuple):
    """How steps are compiled for devices of a type."""

    lacks: Callable[[torch.device], str | None]
    """What a device or the installation lacks."""
    make: Callable[[Kind, Derivation, bool, torch.device], Start]
    """The step of a kind, without or with dt, on a device."""


_makers: dict[str, Callable[[], Maker]] = {}


def register(type: str, load: Callable[[], Maker]) -> None:
    """Let devices of a type have steps; how is loaded when it is first needed."""
    _makers[type] = load


def one_step(
    cell: Cell, weights: Weights, inputs: Tensor, state: State | None, dt: Tensor | None, copied: bool = False
) -> State | None:
    """The state after a step, or None where something is not as compiled code takes it.

    Args:
        cell: what runs.
        weights: by name.
        inputs: `(..., I)`, a few sequences.
        state: `(..., width)` each; None for zeros.
        dt: `(...)`, or None for unit steps.
        copied: whether the hidden state comes once more at the end, in memory of its own.
    """
    weight_ih, weight_hh = weights["weight_ih"], weights["weight_hh"]
    (height, width), shape, features = weight_hh.shape, inputs.shape, weight_ih.shape[1]
    rows, device = inputs.numel() // max(1, features), inputs.get_device()  # -1 on the CPU
    if not (inputs.is_cpu or inputs.is_cuda) or inputs.dtype is not torch.float32 or inputs.layout is not torch.strided:
        return None
    if not 0 < rows <= FEW or shape[-1] != features or weight_ih.shape[0] != height:
        return None
    step = (cell.__dict__.get("_one_step") or _steps_of(cell))[device, dt is not None]
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
            and tensor.get_device() == device
            and tensor.is_contiguous()
            and not tensor.is_neg()
        ):
            addresses.append(tensor.data_ptr())
            if not addresses[-1]:  # of a tensor without memory
                return None
        else:
            return None
    new = (*shape[:-1], units)
    after = [inputs.new_empty(new) for _ in range(step.parts + copied)]
    addresses += [part.data_ptr() for part in after]
    if not copied:
        addresses.append(0)
    step.start(StepSizes(rows, features, units, width), addresses)
    if matrix is not None:
        after[0] = linear(after[0], matrix)
        if copied:
            after[-1] = after[0].clone()
    return tuple(after)


class _Steps(dict[tuple[int, bool], Compiled | None]):
    """Of a cell, by the number of a GPU or -1, without and with dt, compiled when first asked for.

    A copy of the cell has none of them.
    """

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def __missing__(self, key: tuple[int, bool]) -> Compiled | None:
        index, has_dt = key
        if index >= 0 and torch.cuda.is_current_stream_capturing():  # nothing may be tried out now
            return None
        self[key] = found = _step_of(self.cell, torch.device("cpu" if index < 0 else f"cuda:{index}"), has_dt)
        return found

    def __reduce__(self) -> tuple[type[dict[bool, None]], tuple[()]]:
        return dict, ()


def _steps_of(cell: Cell) -> _Steps:
    found = _Steps(cell)
    object.__setattr__(cell, "_one_step", found)  # beside the fields: cells do not change
    return found


_known: dict[tuple[Kind, torch.device, bool], Compiled | None] = {}


def _step_of(cell: Cell, device: torch.device, has_dt: bool) -> Compiled | None:
    """The step of a cell; None where it cannot be had."""
    if not isinstance(cell, PointwiseCell):
        return None
    maker = _makers[device.type]()
    if maker.lacks(device) is not None:
        return None
    known = derivation(cell)
    if (has_dt and not cell.takes_dt) or known.float32[has_dt] is not None or any(known.single):
        return None
    key = kind_of(cell, False, "tf32", device.type), device, has_dt
    if key not in _known:
        _known[key] = _compiled(maker, cell, key[0], device, has_dt)
    return _known[key]


def _compiled(maker: Maker, cell: PointwiseCell, kind: Kind, device: torch.device, has_dt: bool) -> Compiled | None:
    known = derivation(cell)
    try:
        start = maker.make(kind, known, has_dt, device)
    except CompilerError:
        return None
    step = Compiled(start, kind.blocks, len(cell.widths(1, 1)), known.own, known.twice)
    if _agrees(step, cell, device, has_dt):
        return step
    warnings.warn(f"a compiled step of {cell} disagrees with the loop engine; another way is used", stacklevel=2)
    return None


def _agrees(step: Compiled, cell: PointwiseCell, device: torch.device, has_dt: bool) -> bool:
    """Whether it does what the equation says, on numbers of its own."""
    with undisturbed(device), torch.no_grad():
        task = make_task(cell, Sizes(1, 5, 75, 133), torch.float32, device, irregular=has_dt)
        tried = copy(cell)
        _steps_of(tried)[-1 if device.type == "cpu" else device.index, has_dt] = step
        dt = None if task.dt is None else task.dt[0]
        after, truth = (
            one_step(tried, task.weights, task.inputs[0], task.first_state, dt),
            loop.run(widened(task)).state,
        )
        near = partial(torch.allclose, rtol=NEAR, atol=NEAR, equal_nan=True)
        return all(near(part.double(), true) for part, true in zip(after or (), truth, strict=True))
