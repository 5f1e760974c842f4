"""From a task to the operators of kernels and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...cells import GatedCell, GRUCell, JANETCell, LSTMCell
from ..base import EngineResult, EngineTask, Zeros
from ..machine import tf32_in_recurrent_layers
from ..transforms import obstacle_to_kernels
from .contract import Kind, Operands, derivation, several
from .operator import run_kernels

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
CELLS = (LSTMCell, GRUCell, JANETCell)


def unsuited(task: EngineTask, pads: bool = True) -> str | None:
    """Why no kernel can run the task.

    Args:
        task: what is to be run.
        pads: whether kernels have units that are padding.
    """
    if task.inputs.dtype not in DTYPES:
        return f"it computes in float32, bfloat16 and float16, and the input is {task.inputs.dtype}"
    if type(task.cell) not in CELLS:
        return f"it has kernels for LSTM, GRU and JANET, and the cell is {task.cell.name}"
    assert isinstance(task.cell, GatedCell)
    known, has_dt = derivation(task.cell), int(task.dt is not None)
    if known.float32[has_dt] is not None:
        return f"it cannot derive kernels for the gate {task.cell.gate.name}: {known.float32[has_dt]}"
    if pads and known.padding[has_dt] is not None:
        return f"it cannot pad layers with the gate {task.cell.gate.name}: {known.padding[has_dt]}"
    if "weight_hr" in task.weights:
        return "it does not project the hidden state, and proj_size is set"
    return None if torch.compiler.is_compiling() else obstacle_to_kernels(task.tensors)


def run_with(kernels: str, task: EngineTask) -> EngineResult:
    """Run a task, or several side by side, in one launch, with the kernels of that name."""
    cell = task.cell
    assert isinstance(cell, GatedCell)
    units = task.width
    precision = "tf32" if tf32_in_recurrent_layers() else "tf32x3"
    outputs, final = run_kernels(kind_of(cell, task.reverse, precision, kernels), operands_of(task), save=tracked(task))
    carried: tuple[Tensor, ...] = () if final.carried is None else (final.carried,)
    if len(cell.gate.carries) > 1:
        carried = carried[0].unbind(-3)
    parts = (final.hidden, *(() if isinstance(cell, GRUCell) else (final.cell,)), *carried)
    state = tuple(part for part in parts if part is not None)
    if outputs.shape[-1] != units:
        outputs, state = outputs[..., :units], tuple(part[..., :units] for part in state)
    return EngineResult(ended(task, outputs), state)


_kinds: dict[tuple[Any, ...], Kind] = {}


def kind_of(cell: GatedCell, reverse: bool, precision: str, kernels: str) -> Kind:
    """Which kernel runs a cell."""
    if torch.compiler.is_compiling():
        return make_kind(cell, reverse, precision, kernels)
    key = (type(cell), derivation(cell).key, *_settings(cell), reverse, precision, kernels)
    if key not in _kinds:
        _kinds[key] = make_kind(cell, reverse, precision, kernels)
    return _kinds[key]


def _settings(cell: GatedCell) -> tuple[bool, float]:
    return bool(getattr(cell, "coupled", False)), float(getattr(cell, "beta", 0.0))


def make_kind(cell: GatedCell, reverse: bool, precision: str, kernels: str) -> Kind:
    """The same, without a memory of it."""
    gate = derivation(cell).key
    assert gate is not None
    coupled, beta = _settings(cell)
    return Kind(
        cell=cell.name,
        gate=gate,
        blocks=len(cell.blocks),
        split=cell.blocks.index("candidate") if isinstance(cell, GRUCell) else -1,
        coupled=coupled,
        beta=beta,
        carried=len(cell.gate.carries),
        own=len(cell.gate.per_unit),
        reverse=reverse,
        precision=precision,
        kernels=kernels,
    )


def operands_of(task: EngineTask) -> Operands:
    """What a task starts from, as the operators want it."""
    weights, state = task.weights, task.state
    assert isinstance(task.cell, GatedCell)
    gate = task.cell.gate
    hidden = cell = carried = None
    if not isinstance(state, Zeros):
        hidden = state[0].to(task.inputs.dtype)
        cell = hidden if isinstance(task.cell, GRUCell) else state[1]
        carried = several(state[len(state) - len(gate.carries) :], -3)
    return Operands(
        task.inputs,
        weights["weight_ih"],
        weights["weight_hh"],
        weights.get("bias_ih"),
        weights.get("bias_hh"),
        several(tuple(weights[name] for name in gate.per_unit), -2),
        None if task.dt is None else task.dt.float(),
        task.lengths,
        hidden,
        cell,
        carried,
    )


def tracked(task: EngineTask) -> bool:
    """Whether anything of it wants a gradient, and may have one."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in task.tensors)


def ended(task: EngineTask, output: Tensor) -> Tensor:
    """Zero past the end of a sequence, where the kernel holds the last state."""
    if task.lengths is None:
        return output
    steps = torch.arange(output.shape[-3], device=output.device)
    return torch.where((steps[:, None] < task.lengths.unsqueeze(-2))[..., None], output, 0)
