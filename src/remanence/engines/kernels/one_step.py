"""One step of a few sequences as a single call of compiled code: compiling, testing and choosing it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import NamedTuple
from weakref import ref

import torch
from torch import Tensor

from ...cells import Cell, PointwiseCell, Weights
from .. import loop
from ..comparison import undisturbed
from ..samples import Sizes, make_task, widened
from .bound import FEW, FIXED, Bound, Compiled, Read, Start, State, addresses_of
from .contract import Derivation, Kind, derivation
from .machine_code import CompilerError
from .run import kind_of

NEAR = 1e-4
"""Tolerance between a compiled step and the equation in float64: a wrong formula is off by 1e-2 or more."""


def constants_of(kind: Kind, known: Derivation, has_dt: bool) -> dict[str, int | str]:
    """Values of the macros that the sources of steps leave undefined."""
    return kind.constants() | {"ACTIVATED": 0, "HAS_DT": int(has_dt), "CELLS": int(not known.twice)}


def count_addresses(kind: Kind, known: Derivation) -> int:
    """Number of addresses that a step receives, see `Start`."""
    parts = 1 + (not known.twice) + kind.carried
    return 6 + kind.own + 2 * parts + 1


class Maker(NamedTuple):
    """Compiles steps for one device type."""

    lacks: Callable[[torch.device], str | None]
    """What the device or the installation lacks; None if nothing."""
    make: Callable[[Kind, Derivation, bool, torch.device], Start]
    """Compiles the step of a kind, without or with dt, for a device."""


_makers: dict[str, Callable[[], Maker]] = {}


def register(type: str, load: Callable[[], Maker]) -> None:
    """Register how to compile steps for a device type; `load` is called on first use."""
    _makers[type] = load


def bind(cell: Cell, find: Callable[[], Weights], inputs: Tensor, has_dt: bool) -> Bound | None:
    """A compiled step with its weights, or None if compiled code does not support them or inputs like these.

    Args:
        cell: Cell to run.
        find: Finds the weights by name. It is not called if there is no compiled step.
        inputs: Inputs of a step, for which the step is compiled if it is not yet.
        has_dt: Whether steps have a dt.
    """
    if not 0 < inputs.numel() <= FEW * inputs.shape[-1] or inputs.dtype is not torch.float32:
        return None
    if inputs.device.type not in _makers:
        return None
    device = inputs.get_device()  # -1 for the CPU
    step = (cell.__dict__.get("_one_step") or _steps_of(cell))[device, has_dt]
    if step is None:
        return None
    weights = find()
    # One look at addresses and shapes: another thread may change the weights, and `Bound.reads` has to notice.
    named = [(name, weights[name]) for name in (*FIXED, *step.own) if name in weights]
    addresses = addresses_of((weight for _, weight in named), device)
    if addresses is None:
        return None
    read = {
        name: Read(name, ref(weight), address, weight.shape)
        for (name, weight), address in zip(named, addresses, strict=True)
    }
    matrix, matrices = weights.get("weight_hr"), (read["weight_hh"].shape, read["weight_ih"].shape)
    if any(len(shape) != 2 for shape in matrices):
        return None
    (height, width), (rows, _) = matrices
    units = height // step.blocks
    if height != units * step.blocks or rows != height:
        return None
    if (width != units) if matrix is None else (step.twice or matrix.shape != (width, units)):
        return None
    sizes = {"bias_ih": height, "bias_hh": height} | dict.fromkeys(step.own, units)
    if any(read[name].shape.numel() != size for name, size in sizes.items() if name in read):
        return None  # compiled code reads this many elements without checking
    return Bound(cell, step, read, matrix, device, weights.values())


def one_step(cell: Cell, weights: Weights, inputs: Tensor, state: State | None, dt: Tensor | None) -> State | None:
    """The state after a step, or None if compiled code does not support these arguments.

    Args:
        cell: Cell to run.
        weights: Weights by name.
        inputs: `(..., I)`, a few sequences.
        state: `(..., width)` each; None for zeros.
        dt: `(...)`, or None for unit steps.
    """
    bound = bind(cell, lambda: weights, inputs, dt is not None)
    return None if bound is None else bound.run(inputs, state, dt)


class _Steps(dict[tuple[int, bool], Compiled | None]):
    """The compiled steps of a cell, by GPU index (-1 for the CPU) and whether there is dt. Compiled on first use.

    Copies of the cell start without any.
    """

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def __missing__(self, key: tuple[int, bool]) -> Compiled | None:
        index, has_dt = key
        if index >= 0 and torch.cuda.is_current_stream_capturing():  # compiling and testing would break the capture
            return None
        self[key] = found = _step_of(self.cell, torch.device("cpu" if index < 0 else f"cuda:{index}"), has_dt)
        return found

    def __reduce__(self) -> tuple[type[dict[bool, None]], tuple[()]]:
        return dict, ()


def _steps_of(cell: Cell) -> _Steps:
    found = _Steps(cell)
    object.__setattr__(cell, "_one_step", found)  # not a dataclass field: cells are frozen
    return found


_known: dict[tuple[Kind, torch.device, bool], Compiled | None] = {}


def _step_of(cell: Cell, device: torch.device, has_dt: bool) -> Compiled | None:
    """The compiled step of a cell; None if it is not available."""
    if not isinstance(cell, PointwiseCell):
        return None
    maker = _makers[device.type]()
    if maker.lacks(device) is not None:
        return None
    known = derivation(cell)
    if (has_dt and not cell.takes_dt) or known.float32[has_dt] is not None:
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
    step = Compiled(start, kind.blocks, len(cell.widths(1, 1)), known.own, known.twice, has_dt, known.single)
    if _agrees(step, cell, device, has_dt):
        return step
    warnings.warn(f"a compiled step of {cell} disagrees with the loop engine and is not used", stacklevel=2)
    return None


def _agrees(step: Compiled, cell: PointwiseCell, device: torch.device, has_dt: bool) -> bool:
    """Whether a compiled step agrees with the loop engine on random inputs."""
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
