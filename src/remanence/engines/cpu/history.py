"""The tensors of a run: its arguments, and the history that it saves for the backward pass.

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
    """Settings of a run, apart from the tensors that may receive gradients."""

    kernel: CellKernel
    reverse: bool
    padded: Tensor | None
    """`(T, B, 1)`: whether a step lies past the end of its sequence; None if no step does."""
    per_unit: tuple[str, ...]
    """Names of the values that depend only on per-unit weights."""


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
    """The weights and biases are as in `cells.Arranged`."""
    per_unit: tuple[Tensor, ...]
    """`(H,)` each."""
    state: tuple[Tensor, ...]
    """Initial state, `(B, H)` each, hidden first."""

    @property
    def width(self) -> int:
        """H."""
        return self.weight_hh.shape[1]


class History(NamedTuple):
    """Values of all steps. Without a backward pass, only the hidden state is complete; the rest holds one stretch."""

    hidden: Tensor
    """`(T + 1, B, H)`."""
    pre: Tensor
    """`(T, B, G, H)`: pre-activations, overwritten by the values that the backward pass needs."""
    state: tuple[Tensor, ...]
    """`(T + 1, B, H)` each: the state besides hidden."""
    kept: tuple[Tensor, ...]
    """`(T, B, H)` each: other values that the kernel saves."""

    @classmethod
    def empty(cls, plan: CellRun, given: Arguments, steps: int) -> History:
        """Allocate the hidden state of all steps, and `steps` steps of everything else."""
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

        It shares the memory of `hidden` but is not a view: autograd forbids changing a view in place if a custom
        function returned it, and users may well change an output in place.
        """
        after = self.hidden[:-1] if plan.reverse else self.hidden[1:]
        return after.new_empty(0).set_(after.untyped_storage(), after.storage_offset(), after.shape, after.stride())

    def track(self, plan: CellRun, given: Arguments, stretch: Stretch, own: Stretch) -> Track:
        """The views of a stretch, whose position in the saved values is `own`."""
        return Track(
            stretch.local,
            own.of(self.pre),
            stretch.slots(self.hidden),
            dict(zip(plan.kernel.state, map(own.slots, self.state), strict=True)),
            dict(zip(plan.kernel.kept, map(own.of, self.kept), strict=True)),
            dict(zip(plan.per_unit, given.per_unit, strict=True)),
            None if given.dt is None else stretch.of(given.dt),
            None if plan.padded is None else stretch.of(plan.padded),
        )
