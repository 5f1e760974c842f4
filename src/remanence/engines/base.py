"""What an engine is given and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from ..cells import Cell, Weights, wide


class Zeros(NamedTuple):
    """A state of zeros that nobody has made yet: not every engine needs it."""

    widths: tuple[int, ...]
    """Of its parts, hidden first."""


@dataclass(frozen=True)
class EngineTask:
    """One layer in one direction over one batch of sequences.

    T steps, B sequences, I input features. Padding is at the end of a sequence in both directions: a reverse pass
    starts at the last real step.

    Several tasks of one kind, each with weights of its own, are one task with their number N in front of every shape,
    for engines that run them side by side.
    """

    cell: Cell
    weights: Weights
    """Matrices in the dtype of `inputs`; biases and the rest in any floating dtype."""
    inputs: Tensor
    """`(T, B, I)`."""
    state: tuple[Tensor, ...] | Zeros
    """State before the first step, `(B, width)` each, hidden first."""
    dt: Tensor | None = None
    """`(T, B)`: at index t, the time between the step at t and the one processed before it; None for unit steps."""
    lengths: Tensor | None = None
    """`(B,)` on the device of `inputs`; None where all sequences have T steps."""
    reverse: bool = False
    """Whether to go from the last step to the first."""

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
        """All that derivatives may be wanted by."""
        state = () if isinstance(self.state, Zeros) else self.state
        return (self.inputs, *self.weights.values(), *state, *(() if self.dt is None else (self.dt,)))

    @property
    def width(self) -> int:
        """Of the hidden state."""
        return self.state.widths[0] if isinstance(self.state, Zeros) else self.state[0].shape[-1]


class EngineResult(NamedTuple):
    """What running a task gives."""

    output: Tensor
    """Hidden state of every step, `(T, B, width)` in the dtype of the inputs, zero past the end of a sequence."""
    state: tuple[Tensor, ...]
    """State after the last step, `(B, width)` each: hidden in the dtype of the inputs, the rest float32 or wider."""


class Engine(Protocol):
    """A way to run a cell over time. All engines compute what the loop engine computes."""

    name: str
    SIDE_BY_SIDE: bool
    """Whether it runs several tasks in one launch; False where it does not say."""

    def refuses(self, task: EngineTask) -> str | None:
        """Why this engine cannot run the task, a single one, as the end of a sentence; None if it can."""

    def run(self, task: EngineTask) -> EngineResult:
        """Run it."""

    # Engines that compile have these too:
    #
    #     made_of(device) -> tuple[str, ...]    what results depend on beside the source, see `agreement`
    #     prepare(task, others) -> None         compile side by side what tasks need, see `check.prepare`
