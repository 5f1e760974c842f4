"""Single steps (streaming inference) without the setup cost of a sequence: compiled, by torch, or by the equation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ..cells import Cell, GRUCell, Weights, wide
from . import torch as torchs
from .base import EngineTask
from .kernels.bound import Bound
from .kernels.one_step import Maker, bind, one_step, register
from .loop import no_autocast
from .transforms import plain

STEPPING = {"cpu": "c++", "cuda": "cuda"}
"""The engine that computes single steps, by device type."""
State = tuple[Tensor, ...]
"""`(B, width)` each, hidden first."""


def quick_step(
    cell: Cell, weights: Weights, inputs: Tensor, state: State | None, dt: Tensor | None, copied: bool = False
) -> State | None:
    """The state after one step by compiled code, for inference in float32; None if that is not possible.

    Args:
        cell: Cell to run.
        weights: Weights by name.
        inputs: `(B, I)`. Any dimensions may replace B if `state` and `dt` have the same.
        state: State before the step; None for zeros.
        dt: `(B,)`, or None for unit steps.
        copied: Whether to append a copy of the hidden state in its own memory.
    """
    return one_step(cell, weights, inputs, state, dt, copied) if plain(inputs.device.type) else None


class QuickSteps:
    """Compiled single steps of a module, which checks its weights once and not at every step. Copies start anew."""

    __slots__ = ("_bound",)

    def __init__(self) -> None:
        self._bound: Bound | None = None

    def step(
        self,
        cell: Cell,
        parameters: Mapping[str, Tensor | None],
        weights: Callable[[], Weights],
        inputs: Tensor,
        state: State | None,
    ) -> State | None:
        """The state after one unit step, as by `quick_step`.

        Args:
            cell: Cell to run.
            parameters: Parameters of the module by name. If they are the weights, and as long as they do not change,
                `weights` is not called again.
            weights: Finds the weights by name.
            inputs: `(B, I)` or `(I,)`.
            state: State before the step; None for zeros.
        """
        if not plain(inputs.device.type):
            return None
        bound = self._bound
        if bound is None or bound.cell is not cell or not bound.reads(parameters):
            bound = bind(cell, weights(), inputs)
            self._bound = bound if bound is not None and bound.reads(parameters) else None
        return None if bound is None else bound.run(inputs, state, None)

    def __reduce__(self) -> tuple[type[QuickSteps], tuple[()]]:
        return QuickSteps, ()


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

    Arguments are those of `quick_step`; matrices are in the dtype of the inputs.

    Args:
        cell: The cell.
        weights: Weights by name.
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
