"""Runs tasks, eagerly or as operators in a graph (torch.compile, torch.export, torch.jit.trace, ONNX)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..cells import Cell, PointwiseCell
from ..cells.text import as_text
from . import choice, onnx
from .base import EngineResult, EngineTask
from .kernels.contract import derivation
from .operator import as_operator

WITH_OPERATORS = ("cuda", "triton", "c++")
"""Engines that register operators of their own, which save what the backward pass needs."""


def ready(cell: Cell) -> None:
    """Derive and cache what engines need to know about a cell, before torch traces a call of it.

    Args:
        cell: The cell.
    """
    as_text(cell)
    if isinstance(cell, PointwiseCell):
        derivation(cell)


def run(name: str, tasks: Sequence[EngineTask], pieces: int = 0) -> list[EngineResult]:
    """Run tasks of the same kind and shape, each with its own weights; arguments as in `choice.run`.

    Args:
        name: Name of an engine, or "auto".
        tasks: Tasks to run.
        pieces: Number of chunks for activation checkpointing; 0 turns it off.
    """
    if torch._C._get_tracing_state() is not None:  # torch.jit.trace
        if onnx.exporting():
            raise RuntimeError("expected torch.onnx.export with dynamo=True, got dynamo=False")
        return [as_operator(name, task, pieces) for task in tasks]
    if not torch.compiler.is_compiling():
        return choice.run(name, tasks, pieces)
    if torch.compiler.is_exporting():
        if onnx.exporting():
            return [onnx.as_onnx(task) for task in tasks]
    else:
        engine = choice.choose(name, tasks[0], several=len(tasks) > 1)
        if engine.name in WITH_OPERATORS and not (pieces and torch.is_grad_enabled()):
            return choice.run_all(engine, tasks)
    return [as_operator(name, task, pieces) for task in tasks]
