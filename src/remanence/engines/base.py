"""The interface of engines: tasks, results, and the `Engine` protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from ..cells import Cell, GRUCell, JANETCell, LSTMCell, Weights, wide

BY_HAND = (LSTMCell, GRUCell, JANETCell)
"""Cells whose kernels have a hand-written step around a derived gate. Kernels of all others are derived as a whole."""


class Zeros(NamedTuple):
    """An initial state of zeros that is not allocated until an engine needs it; not every engine does."""

    widths: tuple[int, ...]
    """Widths of its parts, hidden first."""


@dataclass(frozen=True)
class EngineTask:
    """One layer in one direction over one batch of sequences.

    T steps, B sequences, I input features. Padding is at the end of a sequence in both directions: a reverse pass
    starts at the last real step.

    Several tasks of the same kind, each with its own weights, can be stacked into one task: every shape then starts
    with a dimension N, the number of tasks. Some engines run these in one launch.
    """

    cell: Cell
    """The cell to run."""
    weights: Weights
    """By name. Matrices are in the dtype of `inputs`; biases and the rest are in any floating-point dtype."""
    inputs: Tensor
    """`(T, B, I)`."""
    state: tuple[Tensor, ...] | Zeros
    """State before the first step, `(B, width)` each, hidden first."""
    dt: Tensor | None = None
    """`(T, B)`: at index t, the time between the step at t and the one processed before it; None for unit steps."""
    lengths: Tensor | None = None
    """`(B,)` on the device of `inputs`; None if all sequences have T steps."""
    reverse: bool = False
    """Whether to run from the last step to the first."""

    @property
    def first_state(self) -> tuple[Tensor, ...]:
        """The state before the first step as tensors."""
        if not isinstance(self.state, Zeros):
            return self.state
        *several, _, batch, _ = self.inputs.shape
        hidden, *others = self.state.widths
        zeros, more = self.inputs.new_zeros, wide(self.inputs.dtype)
        return zeros(*several, batch, hidden), *(zeros(*several, batch, width, dtype=more) for width in others)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that gradients may flow to."""
        state = () if isinstance(self.state, Zeros) else self.state
        return (self.inputs, *self.weights.values(), *state, *(() if self.dt is None else (self.dt,)))

    @property
    def width(self) -> int:
        """Width of the hidden state."""
        return self.state.widths[0] if isinstance(self.state, Zeros) else self.state[0].shape[-1]


class EngineResult(NamedTuple):
    """The result of running a task."""

    output: Tensor
    """Hidden state of every step, `(T, B, width)` in the dtype of the inputs, zero past the end of a sequence."""
    state: tuple[Tensor, ...]
    """State after the last step, `(B, width)` each: hidden in the dtype of the inputs, the rest float32 or wider."""


class Engine(Protocol):
    """A way to run a cell over time. All engines compute the same function as the loop engine."""

    name: str
    SIDE_BY_SIDE: bool
    """Whether it runs several stacked tasks in one launch; False if the attribute is missing."""

    def refuses(self, task: EngineTask) -> str | None:
        """Why this engine cannot run a single task, as the end of a sentence; None if it can."""

    def run(self, task: EngineTask) -> EngineResult:
        """Run a task."""

    # Engines that compile kernels also have:
    #
    #     made_of(device) -> tuple[str, ...]    what results depend on besides the source code, see `agreement`
    #     prepare(task, others) -> None         compile the kernels of tasks in parallel, see `self_check.prepare`
