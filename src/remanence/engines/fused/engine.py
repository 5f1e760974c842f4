"""From a task to the fused operators and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...cells import GatedCell, GRUCell, JANETCell, LSTMCell
from ...gates import KNOWN, PowerLaw
from ..base import Result, Task
from ..machine import tf32_in_recurrent_layers

name = "triton"

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ALIGNMENT = 16
"""Units are padded to a multiple of this."""
CELLS = (LSTMCell, GRUCell, JANETCell)


def refuses(task: Task) -> str | None:
    """Why it cannot run the task."""
    device = task.inputs.device
    if device.type != "cuda" and not interpreting():
        return f"it runs on CUDA devices, and the input is on {device.type}"
    if task.inputs.dtype not in DTYPES:
        return f"it computes in float32, bfloat16 and float16, and the input is {task.inputs.dtype}"
    if type(task.cell) not in CELLS:
        return f"it has kernels for LSTM, GRU and JANET, and the cell is {task.cell.name}"
    assert isinstance(task.cell, GatedCell)
    gate = task.cell.gate
    if type(gate) is not KNOWN.get(gate.name):
        return f"it has no kernel for the gate {gate.name}"
    if "weight_hr" in task.weights:
        return "it does not project the hidden state, and proj_size is set"
    try:
        import triton  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        return "triton is not installed"
    return None


def interpreting() -> bool:
    """Whether Triton interprets its kernels, which then run on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def run(task: Task) -> Result:
    """Run a task in one launch."""
    return run_together([task])[0]


def run_together(tasks: Sequence[Task]) -> list[Result]:
    """Run tasks of one kind and shape, each with weights of its own, side by side in one launch."""
    from .operator import fused

    task = tasks[0]
    cell = task.cell
    assert isinstance(cell, GatedCell)
    dtype = task.inputs.dtype
    units = task.state[0].shape[1]
    blocks = len(cell.blocks)
    more = -units % ALIGNMENT
    split = cell.blocks.index("candidate") if isinstance(cell, GRUCell) else -1
    has_age = isinstance(cell.gate, PowerLaw)
    empty = task.inputs.new_empty(0, dtype=torch.float32)

    def each(value: Callable[[Task], Tensor], *amounts: int) -> Tensor:
        """What all tasks have, padded and in one tensor with the tasks first."""
        values = [value(task) for task in tasks]
        together = values[0].unsqueeze(0) if len(values) == 1 else torch.stack(values)
        # Units that do nothing are added: rows of whole vectors are read and written several times as fast.
        return pad(together, amounts) if any(amounts) else together.contiguous()

    def rows(value: Callable[[Task], Tensor], *amounts: int) -> Tensor:
        """The same for what has a row per block and unit."""

        def by_block(task: Task) -> Tensor:
            tensor = value(task)
            return tensor.reshape(blocks, units, *tensor.shape[1:])

        return each(by_block, *amounts).flatten(1, 2)

    outputs, last_hidden, last_cell, last_age, *_ = fused(
        each(lambda task: task.inputs),
        rows(lambda task: task.weights["weight_ih"], 0, 0, 0, more),
        rows(lambda task: task.weights["weight_hh"], 0, more, 0, more),
        rows(lambda task: _bias(task, units, split), 0, more),
        each(lambda task: _candidate_bias(task, units, split), 0, more) if split >= 0 else empty,
        each(lambda task: _exponent(task, units), 0, more) if has_age else empty,
        None if task.dt is None else each(lambda task: cast(Tensor, task.dt).float()),
        None if task.lengths is None else each(lambda task: cast(Tensor, task.lengths).to(torch.int32)),
        each(lambda task: task.state[0].to(dtype), 0, more),
        each(lambda task: task.state[0 if isinstance(cell, GRUCell) else 1].float(), 0, more),
        each(lambda task: task.state[-1].float(), 0, more) if has_age else empty,
        torch.is_grad_enabled() and any(_tracked(task) for task in tasks),
        cell.name,
        cell.gate.name,
        blocks,
        split,
        bool(getattr(cell, "coupled", False)),
        float(getattr(cell, "beta", 0.0)),
        float(getattr(cell.gate, "eps", 0.0)),
        task.reverse,
        "tf32" if tf32_in_recurrent_layers() else "tf32x3",
    )
    parts = [last_hidden.to(dtype)]
    if not isinstance(cell, GRUCell):
        parts.append(last_cell)
    if has_age:
        parts.append(last_age)
    return [
        Result(_without_padding(task, outputs[n, ..., :units]), tuple(part[n, :, :units] for part in parts))
        for n, task in enumerate(tasks)
    ]


def _tracked(task: Task) -> bool:
    """Whether anything of it wants a gradient."""
    times = () if task.dt is None else (task.dt,)
    return any(tensor.requires_grad for tensor in (task.inputs, *task.state, *task.weights.values(), *times))


def _without_padding(task: Task, output: Tensor) -> Tensor:
    """Zero past the end of a sequence, where the kernel holds the last state."""
    if task.lengths is None:
        return output
    steps = torch.arange(len(output), device=output.device)
    return torch.where((steps[:, None] < task.lengths)[..., None], output, 0)


def _bias(task: Task, units: int, split: int) -> Tensor:
    """What is added to all pre-activations, `(G H,)`: both biases, but for the recurrent one of the GRU's candidate."""
    weights = task.weights
    if "bias_ih" not in weights:
        return task.inputs.new_zeros(len(weights["weight_hh"]), dtype=torch.float32)
    total = weights["bias_ih"].float()
    if "bias_hh" not in weights:
        return total
    recurrent = weights["bias_hh"].float()
    if split >= 0:
        parts = list(torch.split(recurrent, units))
        parts[split] = torch.zeros_like(parts[split])
        recurrent = torch.cat(parts)
    return total + recurrent


def _candidate_bias(task: Task, units: int, split: int) -> Tensor:
    """What is added to the recurrent part of the GRU's candidate, `(H,)`."""
    if "bias_hh" not in task.weights:
        return task.inputs.new_zeros(units, dtype=torch.float32)
    return torch.split(task.weights["bias_hh"].float(), units)[split]


def _exponent(task: Task, units: int) -> Tensor:
    """p of every unit, `(H,)`."""
    assert isinstance(task.cell, GatedCell)
    assert isinstance(task.cell.gate, PowerLaw)
    p = task.cell.gate.exponent(task.weights, torch.float32)
    return p if isinstance(p, Tensor) else task.inputs.new_full((units,), p, dtype=torch.float32)
