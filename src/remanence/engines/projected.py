"""Projections (proj_size) on engines without them: the projection is folded into the recurrent matrix.

A step multiplies R by the projected hidden state P h, and R (P h) is (R P) h. So a layer without a projection, with R P
as its recurrent matrix, has the same cell states, and all of its outputs are projected afterwards in one matmul. That
is more arithmetic (a matrix with H columns instead of proj_size), but the number of sequential steps stays the same.

A given initial state is already projected, but the layer without a projection needs it before the projection. In that
case the first step is computed by the cell's equation, which gives both.
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
    """Runs tasks with a projection on an engine without projections."""

    SIDE_BY_SIDE = False

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name = engine.name

    def refuses(self, task: EngineTask) -> str | None:
        """Why it cannot run the task."""
        if not isinstance(task.cell, PointwiseCell):
            return f"it takes cells with one recurrent matmul and a pointwise update, and {task.cell.name} is not one"
        if derivation(task.cell).twice:
            return f"the update of {task.cell.name} uses its hidden state, which is projected (proj_size)"
        if not isinstance(task.state, Zeros) and task.lengths is not None:
            return "with proj_size it does not take an initial state together with sequences of unequal length"
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
    """The weights with the projection folded in; with `like`, only their shapes are right."""
    weights = {name: weight for name, weight in task.weights.items() if name != MATRIX}
    recurrent, matrix = weights["weight_hh"], task.weights[MATRIX]
    exact = wide(recurrent.dtype)
    if like:
        weights["weight_hh"] = recurrent[:, :1].expand(-1, matrix.shape[-1])
    else:
        weights["weight_hh"] = (recurrent.to(exact) @ matrix.to(exact)).to(recurrent.dtype)
    return weights


def _unprojected(task: EngineTask) -> tuple[Tensor, ...]:
    """An initial state of the right shapes, without values."""
    assert not isinstance(task.state, Zeros)
    hidden, *others = task.state
    return hidden.new_empty(*hidden.shape[:-1], task.weights[MATRIX].shape[-1]), *others


def _step(task: EngineTask, first: slice) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The first step by the cell's equation: the hidden state before projection, `(1, B, H)`, and the new state."""
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
