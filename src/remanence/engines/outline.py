"""Separates a task from its tensors and puts them together again, for torch operators, which take a list of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ..cells import Cell
from .base import EngineTask, Zeros


class Outline(NamedTuple):
    """A task without the tensors that gradients may flow to."""

    cell: Cell
    names: tuple[str, ...]
    """Names of the weights."""
    state: int | Zeros
    """Number of its parts, or a state of zeros."""
    has_dt: bool
    lengths: Tensor | None
    reverse: bool

    @classmethod
    def of(cls, task: EngineTask) -> Outline:
        """The outline of a task; its `tensors` complete it."""
        state = task.state if isinstance(task.state, Zeros) else len(task.state)
        return cls(task.cell, tuple(task.weights), state, task.dt is not None, task.lengths, task.reverse)

    def filled(self, tensors: Sequence[Tensor | None]) -> EngineTask:
        """The task with these tensors, in the order of `EngineTask.tensors`."""
        known = [tensor for tensor in tensors if tensor is not None]
        inputs, known = known[0], known[1:]
        weights, known = dict(zip(self.names, known, strict=False)), known[len(self.names) :]
        dt = known.pop() if self.has_dt else None
        state = self.state if isinstance(self.state, Zeros) else tuple(known)
        return EngineTask(self.cell, weights, inputs, state, dt, self.lengths, self.reverse)
