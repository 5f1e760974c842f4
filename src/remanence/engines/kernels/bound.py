"""Weights bound to a compiled single step, which reads them in place at every call.

A step of one sequence takes no longer than the Python code around it: every call and every tensor counts here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from weakref import ref

import torch
from torch import Tensor
from torch.nn.functional import linear

from ...cells import Cell
from ..transforms import PLAIN
from .contract import for_every_unit, one_a_sequence

FEW = 16
"""Largest batch for which reading the weights once per four sequences is faster than setting up a matmul. On a CPU with
AVX-512 it still is for 32."""

State = tuple[Tensor, ...]

FIXED = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""Weights of every cell, in the order of their addresses."""


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
    has_dt: bool
    """Whether the time since the previous step is an input."""
    single: tuple[bool, ...] = ()
    """Which of the last parts of the state have one element per sequence, see `Derivation`."""


class Read(NamedTuple):
    """A weight that compiled code reads in place."""

    name: str
    weight: ref[Tensor]
    address: int
    shape: torch.Size


class Bound:
    """A compiled step and the weights that it reads: they are checked when they are bound, and not at every step.

    Args:
        cell: The cell whose step it is.
        step: The compiled step.
        weights: Weights that it reads, by name.
        matrix: weight_hr, which `torch.nn.functional.linear` reads; None for none.
        device: Index of the GPU; -1 for the CPU.
        held: Tensors to keep alive, see `let_go`.
    """

    __slots__ = (
        *("cell", "device", "features", "fixed", "has_singles", "held", "matrix", "own", "step", "units", "weights"),
        "width",
    )

    def __init__(
        self,
        cell: Cell,
        step: Compiled,
        weights: Mapping[str, Read],
        matrix: Tensor | None,
        device: int,
        held: Iterable[Tensor],
    ) -> None:
        (height, self.width), self.features = weights["weight_hh"].shape, weights["weight_ih"].shape[1]
        self.cell, self.step, self.device, self.held = cell, step, device, list(held)
        self.matrix = None if matrix is None else ref(matrix)
        self.units, self.weights = height // step.blocks, list(weights.values())
        self.fixed = [weights[name].address if name in weights else 0 for name in FIXED]
        self.own = [weights[name].address for name in step.own]
        self.has_singles = any(step.single)

    def reads(self, weights: Mapping[str, Tensor | None], suffix: str) -> bool:
        """Whether these weights by name are the checked ones: the same objects, with the same memory, shape and layout.

        Values may have changed, since a step reads them in place.

        Args:
            weights: The weights.
            suffix: What their names have at the end.
        """
        for name, checked, address, shape in self.weights:
            weight = weights.get(name + suffix)
            if (
                weight is None
                or weight is not checked()
                or weight.data_ptr() != address
                or weight.shape != shape
                or weight.dtype is not torch.float32
                or not weight.is_contiguous()
                or weight.is_neg()
            ):
                return False
        if self.matrix is None:
            return True
        matrix = weights.get("weight_hr" + suffix)
        return (
            matrix is not None
            and matrix is self.matrix()
            and matrix.shape == (self.width, self.units)
            and matrix.dtype is torch.float32
        )

    def let_go(self) -> None:
        """Keep the weights alive no longer. Before every step, `reads` then has to find them in the module."""
        self.held.clear()

    def run(self, inputs: Tensor, state: State | None, dt: Tensor | None, copied: bool = False) -> State | None:
        """The state after a step; None if compiled code cannot read these tensors, or their sizes do not fit.

        Args:
            inputs: `(..., I)`, a few sequences.
            state: `(..., width)` each; None for zeros.
            dt: `(...)`, or None for unit steps.
            copied: Whether to append a copy of the hidden state.
        """
        step, features, width, units = self.step, self.features, self.width, self.units
        if state is not None and self.has_singles:
            if len(state) != step.parts or any(part.shape[:-1] != inputs.shape[:-1] for part in state):
                return None
            own = step.parts - len(step.single)
            widths = [width, *[units] * (own - 1), *(1 if one else units for one in step.single)]
            if [part.shape[-1] for part in state] != widths:
                return None
            state = tuple(part.contiguous() for part in for_every_unit(step.single, state))
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
            matrix = self.matrix()
            assert matrix is not None
            after[0] = linear(after[0], matrix)
            if copied:
                after[-1] = after[0].clone()
        if self.has_singles:
            found = one_a_sequence(step.single, tuple(after[: step.parts]))
            return (*(part.contiguous() for part in found), *after[step.parts :])
        return tuple(after)


def addresses_of(tensors: Iterable[Tensor], device: int) -> list[int] | None:
    """Addresses of tensors that compiled code can read; None if it cannot read one of them.

    Args:
        tensors: The tensors.
        device: Index of the GPU; -1 for the CPU.
    """
    found = []
    for tensor in tensors:
        if (
            type(tensor) in PLAIN
            and tensor.layout is torch.strided
            and tensor.dtype is torch.float32
            and (tensor.is_cpu if device < 0 else tensor.get_device() == device)
            and tensor.is_contiguous()
            and not tensor.is_neg()
        ):
            found.append(tensor.data_ptr())
            if not found[-1]:  # a tensor without storage
                return None
        else:
            return None
    return found
