"""What a run works on: the tensors it is given, and the history it leaves for the backward pass.

T steps, B sequences, I input features, H units, G blocks of pre-activations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from .buffers import Stretch
from .cells import CellKernel, Track


@dataclass(frozen=True)
class CellRun:
    """How to run, apart from the tensors that gradients may flow to."""

    kernel: CellKernel
    reverse: bool
    padded: Tensor | None
    """`(T, B, 1)`: whether a step lies past the end of its sequence; None where none does."""
    units: tuple[str, ...]
    """Names of what weights of a number a unit come to."""


class Arguments(NamedTuple):
    """The tensors of a run."""

    inputs: Tensor
    """`(T, B, I)`."""
    dt: Tensor | None
    """`(T, B, 1)`."""
    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor
    bias_hh: Tensor
    """These four as in `cells.Arranged`."""
    units: tuple[Tensor, ...]
    """`(H,)` each."""
    state: tuple[Tensor, ...]
    """State before the first step, `(B, H)` each, hidden first."""

    @property
    def width(self) -> int:
        """H."""
        return self.weight_hh.shape[1]


class History(NamedTuple):
    """What happened. Without a backward pass it holds one stretch at a time, except for the hidden state."""

    hidden: Tensor
    """`(T + 1, B, H)`."""
    pre: Tensor
    """`(T, B, G, H)`: pre-activations, overwritten by what the backward pass needs of them."""
    state: tuple[Tensor, ...]
    """`(T + 1, B, H)` each: the state besides hidden."""
    kept: tuple[Tensor, ...]
    """`(T, B, H)` each: what else the kernel wants to find again."""

    @classmethod
    def empty(cls, plan: CellRun, given: Arguments, steps: int) -> History:
        """Room for the hidden state of all steps, and for this many steps of everything else."""
        total, batch = given.inputs.shape[:2]
        new = given.inputs.new_empty
        return cls(
            new(total + 1, batch, given.width),
            new(steps, batch, len(plan.kernel.input_blocks), given.width),
            tuple(new(steps + 1, batch, given.width) for _ in plan.kernel.state),
            tuple(new(steps, batch, given.width) for _ in plan.kernel.kept),
        )

    def output(self, plan: CellRun) -> Tensor:
        """The hidden state after every step, `(T, B, H)`.

        In the memory of `hidden`, but no view of it: autograd forbids changing views in place that come out of an
        operation of one's own, and users may well do that to an output.
        """
        after = self.hidden[:-1] if plan.reverse else self.hidden[1:]
        return after.new_empty(0).set_(after.untyped_storage(), after.storage_offset(), after.shape, after.stride())

    def track(self, plan: CellRun, given: Arguments, stretch: Stretch, own: Stretch) -> Track:
        """A stretch of it, which lies at `own` where the history is short."""
        return Track(
            stretch.local,
            own.of(self.pre),
            stretch.slots(self.hidden),
            dict(zip(plan.kernel.state, map(own.slots, self.state), strict=True)),
            dict(zip(plan.kernel.kept, map(own.of, self.kept), strict=True)),
            dict(zip(plan.units, given.units, strict=True)),
            None if given.dt is None else stretch.of(given.dt),
            None if plan.padded is None else stretch.of(plan.padded),
        )
