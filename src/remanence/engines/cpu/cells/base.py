"""Base classes of cells on this engine: memory layout, and the backward pass through a gate.

Backpropagation through one step is a linear map whose coefficients are known once the forward pass is done. The
engine computes them for a whole stretch in a few large operations: one *plane* per value that requires a gradient (each
block of pre-activations, each part of the state, each per-unit weight, dt). Going back in time, a step multiplies its
planes by the incoming gradient, in place: the gradients of its pre-activations replace the coefficients.

    T steps, B sequences, H units, G blocks of pre-activations, P planes; a stretch has `steps` of the T steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ....cells import GatedCell, PointwiseCell, Weights
from ..buffers import Scratch, Stretch
from ..gate import GateKernel, GateSlopes, Reading

BIASES = ("bias_ih", "bias_hh")


@dataclass(frozen=True)
class Track:
    """All tensors of one stretch, as views of the engine's buffers."""

    stretch: Stretch
    """Its position in the views below: always starts at 0."""
    pre: Tensor
    """`(steps, B, G, H)`: pre-activations, overwritten by the values that the backward pass needs."""
    hidden: Tensor
    """`(steps + 1, B, H)`: hidden state."""
    state: Mapping[str, Tensor]
    """`(steps + 1, B, H)` each: the rest of the state by name."""
    kept: Mapping[str, Tensor]
    """`(steps, B, H)` each: other values that the backward pass needs."""
    per_unit: Mapping[str, Tensor]
    """`(H,)` each: the gate's per-unit weights."""
    dt: Tensor | None
    """`(steps, B, 1)`."""
    padded: Tensor | None
    """`(steps, B, 1)`: whether a step lies past the end of its sequence; None if no step does."""


class Arranged(NamedTuple):
    """Weights in the block order of a kernel, made from those of the layer by differentiable operations."""

    weight_ih: Tensor
    """`(G * H, I)`, in the order of `input_blocks`."""
    weight_hh: Tensor
    """`(G * H, H)`, in the order of `recurrent_blocks`."""
    bias: Tensor
    """`(G * H,)`, in the order of `input_blocks`: added to the projected inputs."""
    bias_hh: Tensor
    """`(n,)`: biases that are added to the recurrent matmul instead, empty for most cells."""
    per_unit: dict[str, Tensor]
    """`(H,)` each."""


@dataclass(frozen=True)
class Gradients:
    """Gradients over one stretch. Until a step is processed, its planes hold the coefficients of its linear map."""

    names: tuple[str, ...]
    """Names of the planes."""
    extra: tuple[str, ...]
    """Names of the per-unit weights, and dt, whose gradients are requested."""
    planes: Tensor
    """`(steps, B, P, H)`."""
    hidden: Tensor
    """`(steps + 1, B, 1, H)`: gradients of the hidden state; each step adds to the slot before it."""
    state: dict[str, Tensor]
    """`(B, 1, H)` each: gradients of the rest of the state by name, at the current step."""

    def plane(self, name: str) -> Tensor:
        """`(steps, B, H)`."""
        return self.planes.select(2, self.names.index(name))

    def span(self, first: str, last: str) -> Tensor:
        """Adjacent planes, `(steps, B, planes, H)`."""
        start, stop = self.names.index(first), self.names.index(last)
        return self.planes[:, :, start : stop + 1]

    def rows(self, blocks: Sequence[str]) -> Tensor:
        """Adjacent planes as one matrix per step, `(steps, B, planes * H)`."""
        return self.span(blocks[0], blocks[-1]).flatten(2)


class CellKernel(ABC):
    """A cell, forward and backward over a stretch.

    Args:
        cell: Cell to run.
        dt: Whether times between steps are given.
        dtype: Dtype of all tensors.
    """

    def __init__(self, cell: PointwiseCell, dt: bool, dtype: torch.dtype) -> None:
        self.cell = cell
        self.dtype = dtype
        self.signs: dict[str, int] = {}
        """The factor, 1 or -1, of every block that has one."""

    # Memory layout.

    @property
    @abstractmethod
    def input_blocks(self) -> tuple[str, ...]:
        """Blocks of the projected inputs; those that go through a sigmoid are adjacent."""

    @property
    def recurrent_blocks(self) -> tuple[str, ...]:
        """Blocks of the recurrent matmul."""
        return self.input_blocks

    @property
    def recurrent_planes(self) -> tuple[str, ...]:
        """Planes that hold the gradients of the recurrent matmul."""
        return self.recurrent_blocks

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the values besides pre-activations and state that the backward pass needs."""
        return ()

    @property
    @abstractmethod
    def state(self) -> tuple[str, ...]:
        """Names of the state besides hidden."""

    @abstractmethod
    def planes(self, extra: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the planes, first those of pre-activations; `extra` as in `Gradients`."""

    @abstractmethod
    def per_unit(self, weights: Weights) -> dict[str, Tensor]:
        """The values that depend only on per-unit weights, computed by differentiable operations."""

    @property
    def block_names(self) -> tuple[str, ...]:
        """Names of the blocks of the layer's weights, in their order."""
        return self.cell.blocks

    def block(self, pre: Tensor, name: str) -> Tensor:
        """One block: `(steps, B, G, H)` to `(steps, B, H)`."""
        return pre.select(-2, self.input_blocks.index(name))

    def arrange(self, weights: Weights) -> Arranged:
        """The layer's weights in the form this kernel uses."""
        rows = weights["weight_hh"].shape[0]
        biases = [weights[name].to(self.dtype) for name in BIASES if name in weights]
        # Not stacked and summed: the two gradients would share memory, and would be clipped twice.
        bias = sum(biases[1:], biases[0]) if biases else weights["weight_hh"].new_zeros(rows)
        bias_hh = bias.new_empty(0)
        bias = self._in_order(bias, self.input_blocks)
        if self.recurrent_planes != self.input_blocks:  # the first input block and the last recurrent one are separate
            bias, bias_hh = self._apart(weights, bias)
        return Arranged(
            self._in_order(weights["weight_ih"], self.input_blocks),
            self._in_order(weights["weight_hh"], self.recurrent_blocks),
            bias,
            bias_hh,
            self.per_unit(weights),
        )

    def _apart(self, weights: Weights, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The biases, with the one of the recurrent part of the first block separate."""
        units = weights["weight_hh"].shape[1]
        if "bias_hh" not in weights:
            return bias, bias.new_zeros(units)
        bias_ih, bias_hh = (self._in_order(weights[name].to(self.dtype), self.input_blocks) for name in BIASES)
        return torch.cat((bias_ih[:units], bias_ih[units:] + bias_hh[units:])), bias_hh[:units]

    def _in_order(self, weight: Tensor, blocks: Sequence[str]) -> Tensor:
        """The rows of a weight `(G * H, ...)` with its blocks in this order, and with the sign that the gate needs."""
        by_name = dict(zip(self.block_names, weight.chunk(len(self.block_names)), strict=True))
        return torch.cat([-by_name[name] if self.signs.get(name) == -1 else by_name[name] for name in blocks])

    # Forward and backward.

    @abstractmethod
    def forward(self, track: Track, weight_hh: Tensor, bias_hh: Tensor, scratch: Scratch) -> None:
        """Run all steps of a stretch: fills the track from the projected inputs and the first slot of each state.

        Args:
            weight_hh: Transposed, `(H, G * H)`.
            bias_hh: As in `Arranged`.
            scratch: `(B, H)` buffers.
        """

    @abstractmethod
    def backward(self, track: Track, gradients: Gradients, weight_hh: Tensor, scratch: Scratch) -> None:
        """Run all steps of a stretch, last to first: fills the planes, and propagates the gradients of the state.

        Args:
            weight_hh: `(G * H, H)`.
            scratch: `(steps, B, H)` buffers.
        """


class AroundGate(CellKernel):
    """A hand-written cell around a gate; arguments as in `CellKernel`."""

    complement: bool = True
    """Whether it needs the gate's complement."""
    cell: GatedCell
    own_state: ClassVar[tuple[str, ...]] = ("cell",)
    """Its state besides the hidden state and the values that the gate carries."""

    def __init__(self, cell: GatedCell, dt: bool, dtype: torch.dtype) -> None:
        super().__init__(cell, dt, dtype)
        self.gate: GateKernel = GateKernel(cell.gate, self.complement, dt, dtype)
        logistic = dict(zip(cell.gate.rows, self.gate.logistic, strict=True))
        self.gate_rows = tuple(sorted(cell.gate.rows, key=lambda row: not logistic[row]))
        """Rows of the gate, those that go through the sigmoid first."""
        self.logistic_rows = sum(self.gate.logistic)
        self.signs = dict(zip(cell.gate.rows, self.gate.signs, strict=True))

    @property
    @abstractmethod
    def passed(self) -> str:
        """The plane that propagates the gradient of the memory from step to step."""

    @property
    def state(self) -> tuple[str, ...]:
        return (*self.own_state, *self.cell.gate.carries)

    @property
    def kept(self) -> tuple[str, ...]:
        return self.gate.kept

    def planes(self, extra: tuple[str, ...]) -> tuple[str, ...]:
        return (*self.input_blocks, *self.cell.gate.carries, *extra, self.passed)

    def per_unit(self, weights: Weights) -> dict[str, Tensor]:
        return self.gate.per_unit(weights)

    def readings(self, track: Track) -> list[Reading]:
        """The tensors that the gate reads and writes at each step, in processing order."""
        return in_turn(self.reading(track), track)

    def reading(self, track: Track) -> Reading:
        """The tensors that the gate reads and writes over the whole stretch."""
        slots = [track.state[name] for name in self.cell.gate.carries]
        return Reading(
            tuple(self.block(track.pre, name) for name in self.cell.gate.rows),
            tuple(track.stretch.before(slot) for slot in slots),
            tuple(track.stretch.after(slot) for slot in slots),
            tuple(track.kept[name] for name in self.gate.kept),
            track.per_unit,
            track.dt,
        )

    def sources(self, gradients: Gradients) -> tuple[str, ...]:
        """The planes of everything that the gate depends on."""
        return (*self.cell.gate.rows, *self.cell.gate.carries, *gradients.extra)

    def slopes(self, track: Track, gradients: Gradients, scratch: Scratch) -> GateSlopes:
        """Buffers for the slopes of the gate: planes for those of the forget value, scratch for those of its state."""
        steps = len(track.stretch)
        times = ("dt",) if "dt" in gradients.extra else ()
        return GateSlopes(
            {name: gradients.plane(name) for name in self.sources(gradients)},
            {
                state: {name: scratch(f"{state} by {name}", steps) for name in (*self.gate.depends[state], *times)}
                for state in self.cell.gate.carries
            },
        )

    def skip_padding(self, track: Track, gradients: Gradients, slopes: GateSlopes) -> None:
        """Make steps past the end of a sequence pass the gradients of the state on unchanged."""
        if track.padded is None:
            return
        gradients.planes.masked_fill_(track.padded.unsqueeze(-1), 0)
        gradients.plane(self.passed).masked_fill_(track.padded, 1)
        for state, by_source in slopes.state.items():
            for source, slope in by_source.items():
                slope.masked_fill_(track.padded, 1 if source == state else 0)


def in_turn(read: Reading, track: Track) -> list[Reading]:
    """One reading per step, in processing order."""
    turn, steps = track.stretch.in_turn, len(track.stretch)
    parts = [list(zip(*map(turn, part), strict=True)) or [()] * steps for part in read[:4]]
    times: Sequence[Tensor | None] = [None] * steps if read.dt is None else turn(read.dt)
    return [
        Reading(rows, before, after, kept, read.per_unit, dt)
        for rows, before, after, kept, dt in zip(*parts, times, strict=True)
    ]


def hold(padded: Tensor, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    """Keep the state of sequences that have ended: mask `(B, 1)`, and `(B, H)` for each part of the state."""
    for old, new in zip(before, after, strict=True):
        torch.where(padded, old, new, out=new)


class GatePath:
    """Backpropagation through the gate's own state: for a power law, through the age."""

    def __init__(self, track: Track, gradients: Gradients, slopes: GateSlopes) -> None:
        back = track.stretch.back
        self._state = gradients.state
        self._links = [
            (state, back(gradients.span(source, source)), back(slope.unsqueeze(2)))
            for state, by_source in slopes.state.items()
            for source, slope in by_source.items()
        ]
        self._before = {state: back(gradients.span(state, state)) for state in slopes.state}

    def step(self, t: int) -> None:
        """Add the gradient through the gate's state to the planes of the t-th step from the end."""
        for state, planes, slopes in self._links:
            planes[t].addcmul_(self._state[state], slopes[t])
        for state, planes in self._before.items():
            self._state[state] = planes[t]
