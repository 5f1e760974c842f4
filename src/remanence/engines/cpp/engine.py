"""Which tasks compiled steps run."""

from __future__ import annotations

from functools import lru_cache

import torch

from ...cells import GatedCell
from ..base import EngineResult, EngineTask
from ..kernels.contract import Backend, register
from ..kernels.machine_code import CompilerError
from ..kernels.run import kind_of, run_with, unsuited
from ..untraced import untraced
from .compiler import because, library, shared_threads, threads_of_torch

name = "c++"


def refuses(task: EngineTask) -> str | None:
    """Why it cannot run the task."""
    device = task.inputs.device
    if device.type != "cpu":
        return f"it runs on the CPU, and the input is on {device}"
    if task.inputs.dtype != torch.float32:
        return f"it computes in float32, and the input is {task.inputs.dtype}"
    return unsuited(task, pads=False) or lacks() or _uncompiled(task)


def lacks() -> str | None:
    """What the machine lacks."""
    many = torch.get_num_threads()
    if many > 1 and threads_of_torch() is None:
        return f"it would compute in one thread, and torch has {many}"
    reason = _no_compiler()
    if reason is None and many > 1 and shared_threads() is None:
        return f"its compiler is not that of torch's {many} threads, which is GNU's"
    return reason


TRIAL = """
#if (defined(__x86_64__) || defined(__i386__)) && !defined(__FMA__)
#error the processor does not multiply and add at once
#endif
extern "C" int one() { return 1; }
"""


@lru_cache
def _no_compiler() -> str | None:
    """That something small can be compiled shows a compiler that works."""
    try:
        library(TRIAL)
    except CompilerError as error:
        return because(error)
    return None


def _uncompiled(task: EngineTask) -> str | None:
    """Why steps of this kind are not there; that they can be had is known once they have been."""
    if torch.compiler.is_compiling():
        return None
    from .recurrence import failure

    assert isinstance(task.cell, GatedCell)
    return failure(kind_of(task.cell, task.reverse, "tf32", name), task.dt is not None)


setattr(lacks, "_dynamo_marked_constant", True)  # noqa: B010  what `assume_constant_result` sets, without its import


@untraced  # a compiler of graphs can add nothing
def run(task: EngineTask) -> EngineResult:
    """Run a task."""
    with torch.autocast("cpu", enabled=False):
        return run_with(name, task)


def _kernels() -> Backend:
    from . import recurrence

    return recurrence


register(name, _kernels)
