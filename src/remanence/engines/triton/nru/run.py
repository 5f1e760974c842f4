"""Conversion of a task with an NRU to the operands of its operator, and of its results back."""

from __future__ import annotations

import torch
from torch import Tensor

from ....cells import NRUCell
from ...base import EngineResult, EngineTask
from ...kernels.run import ended, unsuited_numbers
from ...machine import tf32_in_recurrent_layers
from ...transforms import obstacle_to_kernels


def unsuited(task: EngineTask) -> str | None:
    """Why the kernels cannot run the task; None if they can."""
    reason = unsuited_numbers(task)
    return reason if reason is not None or torch.compiler.is_compiling() else obstacle_to_kernels(task.tensors)


def run(task: EngineTask) -> EngineResult:
    """Run a task, or several side by side."""
    from .operator import nru_forward

    cell, weights, several = task.cell, task.weights, task.inputs.dim() == 4
    assert isinstance(cell, NRUCell)
    hidden, memory = task.first_state
    lengths = task.lengths
    given: list[Tensor | None] = [
        task.inputs.flip(-3) if task.reverse else task.inputs,
        *(weights[name] for name in ("weight_ih", "weight_hh", "weight_mh", "weight_write")),
        *(weights.get(name) for name in ("bias_ih", "bias_write")),
        hidden.to(task.inputs.dtype),
        memory.float(),
        None if lengths is None else lengths.to(torch.int32),
    ]
    if not several:
        given = [None if one is None else one.unsqueeze(0) for one in given]
    precision = "tf32" if tf32_in_recurrent_layers() else "tf32x3"
    states, last, *_ = nru_forward(*given, cell.heads, cell.side, task.reverse, precision)
    if not several:
        states, last = states.squeeze(0), last.squeeze(0)
    outputs = states[..., 1:, :, :].flip(-3) if task.reverse else states[..., 1:, :, :]
    return EngineResult(ended(task, outputs), (states[..., -1, :, :], last))
