"""Which tasks compiled steps run."""

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
    """Why it cannot run the task. That it could, if only its steps could be compiled, is told once."""
    reason = _unfit(task) or _uncompiled(task, tracked(task))
    if reason is not None and reason.startswith(UNCOMPILED) and not torch.compiler.is_compiling():
        _tell_slow(reason)
    return reason


@lru_cache
def _tell_slow(reason: str) -> None:
    warnings.warn(f"layers run on a slower engine than c++ on this CPU: {reason}", stacklevel=2)


def _unfit(task: EngineTask) -> str | None:
    """The same, as far as nothing is compiled for it."""
    device = task.inputs.device
    if device.type != "cpu":
        return f"it runs on the CPU, and the input is on {device}"
    if task.inputs.dtype != torch.float32:
        return f"it computes in float32, and the input is {task.inputs.dtype}"
    return unsuited(task, pads=False) or lacks()


def lacks() -> str | None:
    """What the machine lacks."""
    if sys.platform == "win32":
        return "it is not made for Windows"
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


def _uncompiled(task: EngineTask, save: bool) -> str | None:
    """Why steps of this kind are not there; that they can be had is known once they have been."""
    if torch.compiler.is_compiling():
        return None
    from .recurrence import failure

    assert isinstance(task.cell, PointwiseCell)
    return failure(kind_of(task.cell, task.reverse, "tf32", name), task.dt is not None, save)


def prepare(task: EngineTask, others: Callable[[], Sequence[EngineTask]]) -> None:
    """Compile side by side what a task needs and both passes of others, where it can run the task."""
    if _unfit(task) is None:
        side_by_side(
            [partial(_uncompiled, task, tracked(task)), *(partial(_uncompiled, each, True) for each in others())]
        )


def made_of(device: torch.device) -> tuple[str, ...]:
    """What its results depend on beside its source."""
    return compiler_made_of()


setattr(lacks, "_dynamo_marked_constant", True)  # noqa: B010  what `assume_constant_result` sets, without its import


def run(task: EngineTask) -> EngineResult:
    """Run a task."""
    with torch.autocast("cpu", enabled=False):
        return run_with(name, task)


def _kernels() -> Backend:
    from . import recurrence

    return recurrence


register(name, _kernels)
