"""Export to ONNX: plain LSTMs and GRUs become ONNX operators, all other cells a `Scan` over the cell's equation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..cells import GRUCell, LSTMCell, wide
from . import torch as torch_layers
from .base import EngineResult, EngineTask, Zeros

ORDER = {LSTMCell: (0, 3, 1, 2), GRUCell: (1, 0, 2)}
"""Indices of torch's gate blocks in ONNX order: input, output, forget, cell; update, reset, candidate."""


def exporting() -> bool:
    """Whether an export to ONNX is running."""
    return torch.onnx.is_in_onnx_export()


def as_onnx(task: EngineTask) -> EngineResult:
    """Run a task with operations that the ONNX exporter can translate."""
    if "weight_hr" not in task.weights and torch_layers.refuses(replace(task, lengths=None)) is None:
        return _by_an_operator(task)
    return _by_a_scan(task)


def _by_an_operator(task: EngineTask) -> EngineResult:
    cell, inputs = type(task.cell), task.inputs
    (steps, batch, _), units = inputs.shape, task.width

    def ordered(name: str) -> Tensor:
        weight = task.weights[name]
        return torch.cat([weight[block * units : (block + 1) * units] for block in ORDER[cell]])

    weights: list[Tensor | None] = [ordered("weight_ih").unsqueeze(0), ordered("weight_hh").unsqueeze(0), None]
    if "bias_ih" in task.weights:
        weights[2] = torch.cat((ordered("bias_ih"), ordered("bias_hh"))).unsqueeze(0)
    lengths = None if task.lengths is None else task.lengths.to(torch.int32)
    state = [] if isinstance(task.state, Zeros) else [part.to(inputs.dtype).unsqueeze(0) for part in task.state]
    attributes: dict[str, Any] = {"hidden_size": units, "direction": "reverse" if task.reverse else "forward"}
    if cell is GRUCell:
        attributes["linear_before_reset"] = 1
    parts = 2 if cell is LSTMCell else 1
    output, *after = torch.onnx.ops.symbolic_multi_out(
        "LSTM" if cell is LSTMCell else "GRU",
        [inputs, *weights, lengths, *state],
        attributes,
        dtypes=[inputs.dtype] * (1 + parts),
        shapes=[(steps, 1, batch, units), *[(1, batch, units)] * parts],
    )
    return EngineResult(output.squeeze(1), tuple(part.squeeze(0) for part in after))


def _by_a_scan(task: EngineTask) -> EngineResult:
    from torch._higher_order_ops.scan import scan

    dtype = task.inputs.dtype
    weights = {name: weight.detach() for name, weight in task.weights.items()}
    state = tuple(_alone(part.to(wide(dtype))) for part in task.first_state)
    given = [_alone(task.cell.project(task.inputs, weights))]
    if task.dt is not None:
        given.append(_alone(task.dt.to(wide(dtype)).unsqueeze(-1)))
    if task.lengths is not None:
        steps = torch.arange(task.inputs.shape[0], device=task.inputs.device).unsqueeze(-1)
        given.append(_alone((steps < task.lengths).unsqueeze(-1)))

    def step(before: tuple[Tensor, ...], now: list[Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
        after = task.cell.step(now[0], before, weights, None if task.dt is None else now[1]).state
        output = after[0]
        if task.lengths is not None:
            output = torch.where(now[-1], output, 0)
            after = tuple(torch.where(now[-1], new, old) for new, old in zip(after, before, strict=True))
        return tuple(part.clone() for part in after), output.clone()

    (hidden, *others), output = scan(step, state, given, reverse=task.reverse)
    return EngineResult(output.to(dtype), (hidden.to(dtype), *others))


def _alone(value: Tensor) -> Tensor:
    """A detached copy: with gradients `scan` would return more values per step, and for a view it needs the base."""
    return value.detach().clone()
