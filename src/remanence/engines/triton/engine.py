"""The engine interface of the Triton kernels: which tasks they can run, and how."""

from __future__ import annotations

import os

import torch

from ...cells import NRUCell
from ..base import EngineResult, EngineTask
from ..kernels.contract import Backend, register
from ..kernels.run import run_with, unsuited
from ..machine import described
from . import nru

name = "triton"
SIDE_BY_SIDE = True


def refuses(task: EngineTask) -> str | None:
    """Why it cannot run the task; None if it can."""
    device = task.inputs.device
    if device.type != "cuda" and not interpreting():
        return f"it runs on CUDA devices, and the input is on {device.type}"
    reason = nru.unsuited(task) if isinstance(task.cell, NRUCell) else unsuited(task)
    if reason is not None:
        return reason
    try:
        import triton  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        return "triton is not installed"
    return None


def interpreting() -> bool:
    """Whether Triton's interpreter is enabled (TRITON_INTERPRET=1), which runs kernels on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def run(task: EngineTask) -> EngineResult:
    """Run a task, or several side by side, in one launch."""
    return nru.run(task) if isinstance(task.cell, NRUCell) else run_with(name, task)


def made_of(device: torch.device) -> tuple[str, ...]:
    """Hardware and versions that its results depend on, besides its source."""
    import triton

    return (*described(device), str(triton.__version__), f"interpreted: {interpreting()}")


def _kernels() -> Backend:
    from . import recurrence

    return recurrence


register(name, _kernels)
