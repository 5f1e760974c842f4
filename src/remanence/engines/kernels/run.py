"""Conversion of a task to the operands of the kernels, and of their results back."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ...cells import PointwiseCell
from ..base import EngineResult, EngineTask, Zeros
from ..machine import tf32_in_recurrent_layers
from ..transforms import obstacle_to_kernels
from .contract import DERIVED, Kind, Operands, derivation, for_every_unit, one_a_sequence, several
from .operator import run_kernels

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def unsuited(task: EngineTask, pads: bool = True) -> str | None:
    """Why no kernel can run the task; None if one can.

    Args:
        task: Task to run.
        pads: Whether the kernels pad the units.
    """
    if (reason := unsuited_numbers(task)) is not None:
        return reason
    if not isinstance(task.cell, PointwiseCell):
        return f"it runs cells with one recurrent matmul and a pointwise update, and {task.cell.name} is not one"
    known, has_dt = derivation(task.cell), int(task.dt is not None)
    if known.float32[has_dt] is not None:
        return f"it cannot derive kernels for {known.subject}: {known.float32[has_dt]}"
    if pads and known.padding[has_dt] is not None:
        return f"it cannot pad layers with {known.subject}: {known.padding[has_dt]}"
    if "weight_hr" in task.weights:
        return "it does not support projections, and proj_size is set"
    return None if torch.compiler.is_compiling() else obstacle_to_kernels(task.tensors)


def unsuited_numbers(task: EngineTask) -> str | None:
    """Why no kernel supports the dtype of the inputs; None if one does."""
    if task.inputs.dtype in DTYPES:
        return None
    return f"it computes in float32, bfloat16 and float16, and the input is {task.inputs.dtype}"


def run_with(kernels: str, task: EngineTask) -> EngineResult:
    """Run a task, or several side by side, in one launch of that backend's kernels."""
    cell = cast(PointwiseCell, task.cell)
    units = task.width
    precision = "tf32" if tf32_in_recurrent_layers() else "tf32x3"
    kind = kind_of(cell, task.reverse, precision, kernels)
    outputs, final = run_kernels(kind, cell, operands_of(task), save=tracked(task))
    known = derivation(cell)
    carried: tuple[Tensor, ...] = () if final.carried is None else (final.carried,)
    if len(known.single) > 1:
        carried = carried[0].unbind(-3)
    parts = (final.hidden, *(() if known.twice else (final.cell,)), *carried)
    state = tuple(part for part in parts if part is not None)
    if outputs.shape[-1] != units:
        outputs, state = outputs[..., :units], tuple(part[..., :units] for part in state)
    if any(known.single):
        state = one_a_sequence(known.single, state)
    return EngineResult(ended(task, outputs), state)


_kinds: dict[tuple[Any, ...], Kind] = {}


def kind_of(cell: PointwiseCell, reverse: bool, precision: str, kernels: str) -> Kind:
    """The kernel variant that runs a cell, memoised."""
    if torch.compiler.is_compiling():
        return make_kind(cell, reverse, precision, kernels)
    key = (type(cell), derivation(cell).key, *_settings(cell), reverse, precision, kernels)
    if key not in _kinds:
        _kinds[key] = make_kind(cell, reverse, precision, kernels)
    return _kinds[key]


def _settings(cell: PointwiseCell) -> tuple[bool, float]:
    return bool(getattr(cell, "coupled", False)), float(getattr(cell, "beta", 0.0))


def make_kind(cell: PointwiseCell, reverse: bool, precision: str, kernels: str) -> Kind:
    """The kernel variant that runs a cell."""
    known = derivation(cell)
    assert known.key is not None
    coupled, beta = _settings(cell) if known.kind != DERIVED else (False, 0.0)
    return Kind(
        cell=known.kind,
        gate=known.key,
        blocks=len(cell.blocks),
        split=known.split,
        coupled=coupled,
        beta=beta,
        carried=len(known.single),
        own=len(known.own),
        reverse=reverse,
        precision=precision,
        kernels=kernels,
    )


def operands_of(task: EngineTask) -> Operands:
    """The operands of a task."""
    weights, state = task.weights, task.state
    known = derivation(cast(PointwiseCell, task.cell))
    hidden = cell = carried = None
    if not isinstance(state, Zeros):
        hidden = state[0].to(task.inputs.dtype)
        cell = hidden if known.twice else state[1]
        carried = several(for_every_unit(known.single, state)[len(state) - len(known.single) :], -3)
    return Operands(
        task.inputs,
        weights["weight_ih"],
        weights["weight_hh"],
        weights.get("bias_ih"),
        weights.get("bias_hh"),
        several(tuple(weights[name] for name in known.own), -2),
        None if task.dt is None else task.dt.float(),
        task.lengths,
        hidden,
        cell,
        carried,
    )


def tracked(task: EngineTask) -> bool:
    """Whether autograd is enabled and any tensor of the task requires a gradient."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in task.tensors)


def ended(task: EngineTask, output: Tensor) -> Tensor:
    """Zero the output past the end of each sequence, where the kernel repeats the last state."""
    if task.lengths is None:
        return output
    steps = torch.arange(output.shape[-3], device=output.device)
    return torch.where((steps[:, None] < task.lengths.unsqueeze(-2))[..., None], output, 0)
