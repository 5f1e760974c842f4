"""torch's own LSTM and GRU (cuDNN, oneDNN or ATen) as an engine."""

from __future__ import annotations

import warnings

import torch

from ..cells import GRUCell, LSTMCell
from ..gates import Sigmoid
from .base import EngineResult, EngineTask
from .transforms import obstacle_to_torch

name = "torch"

DTYPES = (torch.float32, torch.float64)


def refuses(task: EngineTask) -> str | None:
    """Why it cannot run the task."""
    if type(task.cell) not in (LSTMCell, GRUCell):
        return f"torch has only an LSTM and a GRU, and the cell is {task.cell.name}"
    assert isinstance(task.cell, LSTMCell | GRUCell)
    if type(task.cell.gate) is not Sigmoid:
        return f"torch has only the sigmoid gate, and the gate is {task.cell.gate.name}"
    if getattr(task.cell, "coupled", False):
        return "torch has no coupled input gate"
    if task.inputs.dtype not in DTYPES:
        return f"torch would keep the state in {task.inputs.dtype}, and it must be float32"
    if task.lengths is not None:
        return "it takes sequences of equal length, and these have different lengths"
    return obstacle_to_torch()


def run(task: EngineTask) -> EngineResult:
    """Run a task; a reverse pass is a forward pass over the flipped sequence."""
    inputs = task.inputs.flip(0) if task.reverse else task.inputs
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    weights = [task.weights[name] for name in names if name in task.weights]
    state = tuple(part.to(inputs.dtype).unsqueeze(0).contiguous() for part in task.first_state)
    settings = ("bias_ih" in task.weights, 1, 0.0, torch.is_grad_enabled(), False, False)
    with warnings.catch_warnings():
        # cuDNN copies weights that are not in one contiguous chunk. These never are: they may be dropped or frozen.
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
        if isinstance(task.cell, LSTMCell):
            output, *after = torch.lstm(inputs, state, weights, *settings)
        else:
            output, *after = torch.gru(inputs, state[0], weights, *settings)
    return EngineResult(output.flip(0) if task.reverse else output, tuple(part.squeeze(0) for part in after))
