"""One step of a few sequences as a single call of compiled code that reads the weights in place.

A step of one sequence takes no longer than the Python code around it: every call and every tensor counts here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from ...cells import Cell, PointwiseCell, Weights
from .. import loop
from ..comparison import undisturbed
from ..samples import Sizes, make_task, widened
from ..transforms import PLAIN
from .contract import Derivation, Kind, derivation
from .machine_code import CompilerError
from .run import kind_of

FEW = 16
"""Largest batch for which reading the weights once per sequence is faster than setting up a matmul."""
NEAR = 1e-4
"""Tolerance between a compiled step and the equation in float64: a wrong formula is off by 1e-2 or more."""

State = tuple[Tensor, ...]


class StepSizes(NamedTuple):
    """Sizes of a step."""

    rows: int
    inputs: int
    units: int
    width: int
    """Width of the hidden state: the number of units, unless it is projected."""


Start = Callable[[StepSizes, list[int]], None]
"""Runs a step of a shape. The addresses are those of inputs `(B, I)`, weight_ih `(G H, I)`, weight_hh `(G H, W)`,
bias_ih, bias_hh `(G H)`, dt `(B,)`, per-unit weights `(H,)`, the state before, `(B, W)` then `(B, H)`, and the state
after, `(B, H)` each, with a buffer for a copy of the hidden state at the end: 0 for missing tensors."""


def constants_of(kind: Kind, known: Derivation, has_dt: bool) -> dict[str, int | str]:
    """Values of the macros that the sources of steps leave undefined."""
    return kind.constants() | {"ACTIVATED": 0, "HAS_DT": int(has_dt), "CELLS": int(not known.twice)}


def count_addresses(kind: Kind, known: Derivation) -> int:
    """Number of addresses that a step receives, see `Start`."""
    parts = 1 + (not known.twice) + kind.carried
    return 6 + kind.own + 2 * parts + 1


class Compiled(NamedTuple):
    """The compiled step of a cell."""

    start: Start
    blocks: int
    parts: int
    """Number of tensors in the state."""
    own: tuple[str, ...]
    """Names of the per-unit weights of the cell or its gate."""
    twice: bool
    """Whether the hidden state takes part in the update."""


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


class Bound:
    """A compiled step and the weights it reads, checked once for all steps until they change.

    Args:
        step: The compiled step.
        weights: Weights by name.
        device: Index of the GPU; -1 for the CPU.
    """

    __slots__ = ("device", "features", "fixed", "matrix", "own", "read", "step", "units", "width")

    def __init__(self, step: Compiled, weights: Weights, device: int, fixed: list[int], own: list[int]) -> None:
        (height, self.width), self.features = weights["weight_hh"].shape, weights["weight_ih"].shape[1]
        self.step, self.device, self.units, self.matrix = step, device, height // step.blocks, weights.get("weight_hr")
        self.fixed, self.own = fixed, own
        self.read = [(name, each, each.data_ptr(), each.numel()) for name, each in weights.items()]

    def reads(self, weights: Mapping[str, Tensor | None]) -> bool:
        """Whether these weights by name are the checked ones: the same objects, with the same memory and layout.

        Values may have changed, since a step reads them in place.
        """
        for name, weight, address, count in self.read:
            if (
                weights.get(name) is not weight
                or weight.data_ptr() != address
                or weight.numel() != count
                or weight.dtype is not torch.float32
                or not weight.is_contiguous()
            ):
                return False
        return True

    def run(self, inputs: Tensor, state: State | None, dt: Tensor | None, copied: bool = False) -> State | None:
        """The state after a step, see `one_step`."""
        step, features, width, units = self.step, self.features, self.width, self.units
        given = [inputs] if state is None else [inputs, *state]
        if dt is not None:
            given.append(dt)
        addresses = addresses_of(given, self.device)
        if addresses is None:
            return None
        shape, rows = inputs.shape, inputs.numel() // max(1, features)
        if not 0 < rows <= FEW or shape[-1] != features or (dt is not None and dt.numel() != rows):
            return None
        new = (*shape[:-1], units)
        if state is not None:
            if len(state) != step.parts or state[0].shape != (new if width == units else (*shape[:-1], width)):
                return None
            for part in state[1:]:
                if part.shape != new:
                    return None
        elapsed = 0 if dt is None else addresses.pop()
        before = addresses[1:] or [0] * step.parts
        like = inputs.new_empty(new) if state is None or (width != units and step.parts == 1) else state[-1]
        after = [torch.empty_like(like) for _ in range(step.parts + copied)]
        addresses = [addresses[0], *self.fixed, elapsed, *self.own, *before, *[part.data_ptr() for part in after]]
        if not copied:
            addresses.append(0)
        step.start(StepSizes(rows, features, units, width), addresses)
        if self.matrix is not None:
            after[0] = linear(after[0], self.matrix)
            if copied:
                after[-1] = after[0].clone()
        return tuple(after)


def addresses_of(tensors: Iterable[Tensor], device: int) -> list[int] | None:
    """Addresses of tensors that compiled code can read; None if it cannot read one of them."""
    found = []
    for tensor in tensors:
        if (
            type(tensor) in PLAIN
            and tensor.layout is torch.strided
            and tensor.dtype is torch.float32
            and tensor.get_device() == device
            and tensor.is_contiguous()
            and not tensor.is_neg()
        ):
            found.append(tensor.data_ptr())
            if not found[-1]:  # a tensor without storage
                return None
        else:
            return None
    return found


def bind(cell: Cell, weights: Weights, device: int, has_dt: bool = False) -> Bound | None:
    """A compiled step with these weights, or None if compiled code does not support them.

    Args:
        cell: Cell to run.
        weights: Weights by name.
        device: Index of the GPU; -1 for the CPU.
        has_dt: Whether steps have a dt.
    """
    weight_ih, weight_hh, matrix = weights["weight_ih"], weights["weight_hh"], weights.get("weight_hr")
    if weight_hh.dtype is not torch.float32 or not (weight_hh.is_cpu or weight_hh.is_cuda):
        return None
    step = (cell.__dict__.get("_one_step") or _steps_of(cell))[device, has_dt]
    if step is None:
        return None
    (height, width), own = weight_hh.shape, [weights[each] for each in step.own]
    units = height // step.blocks
    if height != units * step.blocks or weight_ih.shape[0] != height:
        return None
    if (width != units) if matrix is None else (step.twice or matrix.shape != (width, units)):
        return None
    both = weights.get("bias_ih"), weights.get("bias_hh")
    for vectors, size in ((both, height), (own, units)):  # compiled code reads this many elements without checking
        for vector in vectors:
            if vector is not None and vector.numel() != size:
                return None
    found = addresses_of((each for each in (weight_ih, weight_hh, *both, *own) if each is not None), device)
    if found is None:
        return None
    addresses = iter(found)
    fixed = [0 if each is None else next(addresses) for each in (weight_ih, weight_hh, *both)]
    return Bound(step, weights, device, fixed, list(addresses))


def is_few(inputs: Tensor) -> bool:
    """Whether these may be inputs of a compiled step: nothing is compiled for others."""
    few = 0 < inputs.numel() <= FEW * inputs.shape[-1]
    return few and (inputs.is_cpu or inputs.is_cuda) and inputs.dtype is torch.float32


def one_step(
    cell: Cell, weights: Weights, inputs: Tensor, state: State | None, dt: Tensor | None, copied: bool = False
) -> State | None:
    """The state after a step, or None if compiled code does not support these arguments.

    Args:
        cell: Cell to run.
        weights: Weights by name.
        inputs: `(..., I)`, a few sequences.
        state: `(..., width)` each; None for zeros.
        dt: `(...)`, or None for unit steps.
        copied: Whether to append a copy of the hidden state.
    """
    if not is_few(inputs):
        return None
    bound = bind(cell, weights, inputs.get_device(), dt is not None)  # the CPU has -1
    return None if bound is None else bound.run(inputs, state, dt, copied)


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
