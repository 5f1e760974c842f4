"""From a task to the fused operators and back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...cells import GatedCell, GRUCell, JANETCell, LSTMCell
from ...gates import KNOWN
from ..base import Result, Task, Zeros
from ..machine import tf32_in_recurrent_layers
from ..transforms import hinders_kernels

if TYPE_CHECKING:
    from .launch import Given, Kind

name = "triton"
SIDE_BY_SIDE = True

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
CELLS = (LSTMCell, GRUCell, JANETCell)


def refuses(task: Task) -> str | None:
    """Why it cannot run the task."""
    device = task.inputs.device
    if device.type != "cuda" and not interpreting():
        return f"it runs on CUDA devices, and the input is on {device.type}"
    reason = unsuited(task)
    if reason is not None:
        return reason
    try:
        import triton  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        return "triton is not installed"
    return None


def unsuited(task: Task) -> str | None:
    """Why no fused kernel can run the task."""
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
    return None if torch.compiler.is_compiling() else hinders_kernels(task.tensors)


def interpreting() -> bool:
    """Whether Triton interprets its kernels, which then run on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def run(task: Task) -> Result:
    """Run a task, or several side by side, in one launch."""
    return run_with(name, task)


def run_with(kernels: str, task: Task) -> Result:
    """The same, with Triton's kernels or with those of `clusters`."""
    from .operator import fused

    cell = task.cell
    assert isinstance(cell, GatedCell)
    units = task.width
    outputs, final = fused(
        kind_of(cell, task.reverse, "tf32" if tf32_in_recurrent_layers() else "tf32x3", kernels),
        given(task),
        save=tracked(task),
    )
    parts = (
        final.hidden,
        *(() if isinstance(cell, GRUCell) else (final.cell,)),
        *(final.age,) * bool(cell.gate.carries),
    )
    state = tuple(part for part in parts if part is not None)
    if outputs.shape[-1] != units:
        outputs, state = outputs[..., :units], tuple(part[..., :units] for part in state)
    return Result(ended(task, outputs), state)


_kinds: dict[tuple[GatedCell, bool, str, str], Kind] = {}


def kind_of(cell: GatedCell, reverse: bool, precision: str, kernels: str) -> Kind:
    """Which kernel runs a cell."""
    if torch.compiler.is_compiling():
        return make_kind(cell, reverse, precision, kernels)
    key = (cell, reverse, precision, kernels)
    if key not in _kinds:
        _kinds[key] = make_kind(*key)
    return _kinds[key]


def make_kind(cell: GatedCell, reverse: bool, precision: str, kernels: str) -> Kind:
    """The same, without a memory of it."""
    from .launch import Kind

    return Kind(
        cell=cell.name,
        gate=cell.gate.name,
        blocks=len(cell.blocks),
        split=cell.blocks.index("candidate") if isinstance(cell, GRUCell) else -1,
        coupled=bool(getattr(cell, "coupled", False)),
        beta=float(getattr(cell, "beta", 0.0)),
        eps=float(getattr(cell.gate, "eps", 0.0)),
        fixed_p=float(getattr(cell.gate, "p", None) or 0.0),
        reverse=reverse,
        precision=precision,
        kernels=kernels,
    )


def given(task: Task) -> Given:
    """What a task starts from, as the operators want it."""
    from .launch import Given

    weights, state = task.weights, task.state
    assert isinstance(task.cell, GatedCell)
    hidden = cell = age = None
    if not isinstance(state, Zeros):
        hidden = state[0].to(task.inputs.dtype)
        cell = hidden if isinstance(task.cell, GRUCell) else state[1]
        age = state[-1] if task.cell.gate.carries else None
    return Given(
        task.inputs,
        weights["weight_ih"],
        weights["weight_hh"],
        weights.get("bias_ih"),
        weights.get("bias_hh"),
        weights.get("p_hat"),
        None if task.dt is None else task.dt.float(),
        task.lengths,
        hidden,
        cell,
        age,
    )


def tracked(task: Task) -> bool:
    """Whether anything of it wants a gradient, and may have one."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in task.tensors)


def ended(task: Task, output: Tensor) -> Tensor:
    """Zero past the end of a sequence, where the kernel holds the last state."""
    if task.lengths is None:
        return output
    steps = torch.arange(output.shape[-3], device=output.device)
    return torch.where((steps[:, None] < task.lengths.unsqueeze(-2))[..., None], output, 0)
