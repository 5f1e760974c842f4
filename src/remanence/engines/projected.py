"""A projected hidden state (proj_size) on engines that have none: the projection goes into the recurrent matrix.

A step multiplies R by what is left of h after the projection P: R (P h) is (R P) h. So a layer without a projection,
with R P for its recurrent matrix, goes through the same cells, and all of its outputs are projected afterwards, in one
product. That is more arithmetic, H columns for as many as P has rows, and no more steps that wait for each other.

A first state is given after the projection, where the layer without one would need what was before it: then the first
step is that of the equation, from which both are known.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..cells import PointwiseCell, wide
from ..cells.base import affine
from .base import Engine, EngineResult, EngineTask, Zeros
from .kernels.contract import derivation
from .loop import no_autocast

MATRIX = "weight_hr"


def is_projected(task: EngineTask) -> bool:
    """Whether the hidden state is projected."""
    return MATRIX in task.weights


class Folding:
    """An engine for tasks with a projection, of one that takes none."""

    SIDE_BY_SIDE = False

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name = engine.name

    def refuses(self, task: EngineTask) -> str | None:
        """Why it cannot run the task."""
        if not isinstance(task.cell, PointwiseCell):
            return f"it takes cells with one recurrent product and a pointwise update, and {task.cell.name} is none"
        if derivation(task.cell).twice:
            return f"its hidden state takes part in the update of {task.cell.name}, and is projected (proj_size)"
        if not isinstance(task.state, Zeros) and task.lengths is not None:
            return "it does not project from a first state where sequences have unequal lengths (proj_size)"
        state = Zeros(_widths(task)) if isinstance(task.state, Zeros) else _unprojected(task)
        return self.engine.refuses(replace(task, weights=_folded(task, like=True), state=state))

    def run(self, task: EngineTask) -> EngineResult:
        """Run a task."""
        with no_autocast(task.inputs.device.type):
            return self._run(task)

    def _run(self, task: EngineTask) -> EngineResult:
        matrix = task.weights[MATRIX]
        if isinstance(task.state, Zeros):
            result = self.engine.run(replace(task, weights=_folded(task), state=Zeros(_widths(task))))
            return _projected(result, matrix)
        first = slice(-1, None) if task.reverse else slice(0, 1)
        output, state = _step(task, first)
        if len(task.inputs) == 1:
            return _projected(EngineResult(output, state), matrix)
        rest = slice(0, -1) if task.reverse else slice(1, None)
        dt = None if task.dt is None else task.dt[rest]
        others = replace(task, weights=_folded(task), inputs=task.inputs[rest], state=state, dt=dt)
        result = self.engine.run(others)
        both = (result.output, output) if task.reverse else (output, result.output)
        return _projected(EngineResult(torch.cat(both), result.state), matrix)


def _widths(task: EngineTask) -> tuple[int, ...]:
    units = task.weights[MATRIX].shape[-1]
    return tuple(task.cell.widths(units, units).values())


def _folded(task: EngineTask, like: bool = False) -> dict[str, Tensor]:
    """The weights without a projection; only of the right shapes where that is enough."""
    weights = {name: weight for name, weight in task.weights.items() if name != MATRIX}
    recurrent, matrix = weights["weight_hh"], task.weights[MATRIX]
    exact = wide(recurrent.dtype)
    if like:
        weights["weight_hh"] = recurrent[:, :1].expand(-1, matrix.shape[-1])
    else:
        weights["weight_hh"] = (recurrent.to(exact) @ matrix.to(exact)).to(recurrent.dtype)
    return weights


def _unprojected(task: EngineTask) -> tuple[Tensor, ...]:
    """A first state of the right shapes."""
    assert not isinstance(task.state, Zeros)
    hidden, *others = task.state
    return hidden.new_empty(*hidden.shape[:-1], task.weights[MATRIX].shape[-1]), *others


def _step(task: EngineTask, first: slice) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The first step by the equation: the hidden state before its projection, `(1, B, H)`, and the state after it."""
    assert isinstance(task.cell, PointwiseCell)
    assert not isinstance(task.state, Zeros)
    weights, state = task.weights, tuple(part.to(wide(part.dtype)) for part in task.state)
    projected = task.cell.project(task.inputs[first], weights)[0]
    recurrent = affine(state[0], weights["weight_hh"], weights.get("bias_hh"))
    dt = None if task.dt is None else task.dt[first].squeeze(0).unsqueeze(-1)
    hidden, *others = task.cell.pointwise(projected, recurrent, state, weights, dt).state
    hidden = hidden.to(task.inputs.dtype)
    return hidden.unsqueeze(0), (hidden, *others)


def _projected(result: EngineResult, matrix: Tensor) -> EngineResult:
    hidden, *others = result.state
    return EngineResult(linear(result.output, matrix), (linear(hidden, matrix), *others))
