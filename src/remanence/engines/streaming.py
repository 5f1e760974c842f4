"""Single steps (streaming inference) without the setup cost of a sequence: compiled, by torch, or by the equation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ..cells import Cell, GRUCell, Weights, wide
from . import torch as torchs
from .base import EngineTask
from .kernels.bound import Bound
from .kernels.one_step import Maker, bind, register
from .loop import no_autocast
from .transforms import plain

STEPPING = {"cpu": "c++", "cuda": "cuda"}
"""The engine that computes single steps, by device type."""
State = tuple[Tensor, ...]
"""`(B, width)` each, hidden first."""


class QuickSteps:
    """Compiled single steps of a module in one place. Weights are checked when they are bound to the compiled code.

    After that a step only looks whether they are still the same. Copies start anew.

    Args:
        suffix: What the parameters of the module have behind the names of the weights.
    """

    __slots__ = ("_bound", "_suffix")

    def __init__(self, suffix: str = "") -> None:
        self._bound: Bound | None = None
        self._suffix = suffix

    def step(
        self,
        cell: Cell,
        parameters: Mapping[str, Tensor | None],
        weights: Callable[[], Weights],
        inputs: Tensor,
        state: State | None,
        dt: Tensor | None = None,
        copied: bool = False,
    ) -> State | None:
        """The state after one step by compiled code, for inference in float32; None if that is not possible.

        Args:
            cell: Cell to run.
            parameters: Parameters of the module by name. If they are the weights, and as long as they do not change,
                `weights` is not called again.
            weights: Finds the weights by name, where they have to be checked.
            inputs: `(B, I)`. Any dimensions may replace B if `state` and `dt` have the same.
            state: State before the step; None for zeros.
            dt: `(B,)`, or None for unit steps.
            copied: Whether to append a copy of the hidden state in its own memory.
        """
        kind = inputs.device.type
        if kind not in STEPPING or not plain(kind):
            return None
        bound, has_dt = self._bound, dt is not None
        if (
            bound is None
            or bound.cell is not cell
            or bound.step.has_dt is not has_dt
            or not bound.reads(parameters, self._suffix)
        ):
            bound = bind(cell, weights, inputs, has_dt)
            lasts = bound is not None and bound.reads(parameters, self._suffix)
            if bound is not None and lasts:
                bound.let_go()
            self._bound = bound if lasts else None
        return None if bound is None else bound.run(inputs, state, dt, copied)

    def __reduce__(self) -> tuple[type[QuickSteps], tuple[str]]:
        return QuickSteps, (self._suffix,)


def _on_cpus() -> Maker:
    from .cpp.one_step import maker

    return maker


def _on_gpus() -> Maker:
    from .cuda.one_step import maker

    return maker


register("cpu", _on_cpus)
register("cuda", _on_gpus)


def step(cell: Cell, weights: Weights, inputs: Tensor, state: State, dt: Tensor | None) -> State:
    """The state after one step, differentiable, on any device: by torch's own cell if it has one, else by the equation.

    Args:
        cell: The cell.
        weights: Weights by name; matrices are in the dtype of the inputs.
        inputs: `(B, I)`.
        state: State before the step, `(B, width)` each.
        dt: `(B,)` time since the previous step, or None.
    """
    task = EngineTask(cell, weights, inputs.unsqueeze(0), state, None if dt is None else dt.unsqueeze(0))
    if torchs.refuses(task) is None and "weight_hr" not in weights:
        return _torchs_step(cell, weights, inputs, state)
    return equation(cell, weights, inputs, state, dt)


def _torchs_step(cell: Cell, weights: Weights, inputs: Tensor, state: State) -> State:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    given = [weights.get(name) for name in names]
    with no_autocast(inputs.device.type):
        if isinstance(cell, GRUCell):
            return (torch.gru_cell(inputs, state[0], *given),)  # type: ignore[arg-type]
        return torch.lstm_cell(inputs, state, *given)  # type: ignore[arg-type]


def equation(cell: Cell, weights: Weights, inputs: Tensor, state: State, dt: Tensor | None) -> State:
    """The state after one step by the cell's equation.

    Args:
        cell: The cell.
        weights: Weights by name.
        inputs: `(B, I)`.
        state: State before the step, `(B, width)` each.
        dt: `(B,)` time since the previous step, or None.
    """
    dtype = inputs.dtype
    with no_autocast(inputs.device.type):
        before = tuple(part.to(wide(dtype)) for part in state)
        hidden, *others = cell.step(
            cell.project(inputs, weights), before, weights, None if dt is None else dt.unsqueeze(-1)
        ).state
        return hidden.to(dtype), *others
