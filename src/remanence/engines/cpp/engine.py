"""The c++ engine: which tasks it runs, and how it is prepared."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import torch

from ...cells import PointwiseCell
from ..base import EngineResult, EngineTask
from ..kernels.compiling import side_by_side
from ..kernels.contract import Backend, register
from ..kernels.machine_code import CompilerError
from ..kernels.run import kind_of, run_with, tracked, unsuited
from .compiler import UNCOMPILED, because, library, shared_threads, threads_of_torch
from .compiler import made_of as compiler_made_of

name = "c++"


def refuses(task: EngineTask) -> str | None:
    """Why it cannot run the task. If only a compiler is missing, there is also one warning."""
    reason = _unfit(task) or _uncompiled(task, tracked(task))
    if reason is not None and reason.startswith(UNCOMPILED) and not torch.compiler.is_compiling():
        _tell_slow(reason)
    return reason


@lru_cache
def _tell_slow(reason: str) -> None:
    warnings.warn(f"layers run on a slower engine than c++ on this CPU: {reason}", stacklevel=2)


def _unfit(task: EngineTask) -> str | None:
    """Why it cannot run the task, as far as can be told without compiling it."""
    device = task.inputs.device
    if device.type != "cpu":
        return f"it runs on the CPU, and the input is on {device}"
    if task.inputs.dtype != torch.float32:
        return f"it computes in float32, and the input is {task.inputs.dtype}"
    return unsuited(task, pads=False) or lacks()


def lacks() -> str | None:
    """What this machine lacks for the engine, as the end of a sentence; None if nothing."""
    if sys.platform == "win32":
        return "it does not support Windows"
    many = torch.get_num_threads()
    if many > 1 and threads_of_torch() is None:
        return f"it would run in one thread, and torch uses {many}"
    reason = _no_compiler()
    if reason is None and many > 1 and shared_threads() is None:
        return f"its compiler is not g++, which it needs to share torch's {many} OpenMP threads (libgomp)"
    return reason


TRIAL = """
#if (defined(__x86_64__) || defined(__i386__)) && !defined(__FMA__)
#error the CPU has no FMA instructions
#endif
extern "C" int one() { return 1; }
"""


@lru_cache
def _no_compiler() -> str | None:
    """Why there is no working compiler, found out by compiling a small source."""
    try:
        library(TRIAL)
    except CompilerError as error:
        return because(error)
    return None


def _uncompiled(task: EngineTask, save: bool) -> str | None:
    """Why the steps of this kind cannot be compiled; the only way to know is to compile them."""
    if torch.compiler.is_compiling():
        return None
    from .recurrence import failure

    assert isinstance(task.cell, PointwiseCell)
    return failure(kind_of(task.cell, task.reverse, "tf32", name), task.dt is not None, save)


def prepare(task: EngineTask, others: Callable[[], Sequence[EngineTask]]) -> None:
    """If it can run the task, compile its steps and both passes of the others in parallel."""
    if _unfit(task) is None:
        side_by_side(
            [partial(_uncompiled, task, tracked(task)), *(partial(_uncompiled, each, True) for each in others())]
        )


def made_of(device: torch.device) -> tuple[str, ...]:
    """What its results depend on besides its source code."""
    return compiler_made_of()


setattr(lacks, "_dynamo_marked_constant", True)  # noqa: B010  like `assume_constant_result`, without the import


def run(task: EngineTask) -> EngineResult:
    """Run a task."""
    with torch.autocast("cpu", enabled=False):
        return run_with(name, task)


def _kernels() -> Backend:
    from . import recurrence

    return recurrence


register(name, _kernels)
