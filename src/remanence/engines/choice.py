"""Selects the engine that runs a task, and runs it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from ..cells import LSTMCell, PointwiseCell, SRUCell
from . import cuda, side_by_side
from .base import Engine, EngineResult, EngineTask
from .doubled import Doubled
from .kernels.contract import derivation, no_formula
from .kernels.run import tracked
from .machine import X86, tf32_in_recurrent_layers
from .pieces import run_in_pieces
from .projected import Folding, is_projected
from .self_check import family_of, prepare, self_check
from .table import KNOWN, check_name, runs_side_by_side
from .transforms import obstacle
from .triton import tiling

CUDNN_WINS = 128
"""Up to this many units, cuDNN keeps a plain LSTM or GRU on chip and is slightly faster than the Triton kernels."""
CUDNN_WINS_IN_FULL = 256
"""Above this many units, cuDNN is also faster in full float32, where the Triton kernels stream every weight as two
values."""


ONEDNN_WINS = 256
"""Above this many units, torch's inference with a plain LSTM is faster than the c++ engine: on x86, where torch uses
oneDNN, and without a projection."""


TORCH_PROJECTS = 256
"""Above this many units, a CPU step is bound by arithmetic. With a small projection, multiplying by the folded matrix
(see `projected`) is more arithmetic than torch's LSTM does."""


TRITON_WINS = 768
"""Above this many units, the cluster kernels read part of the recurrent matrix from memory in every step. If the Triton
kernels can keep all of it on chip, they are faster for batches larger than the clusters process at once."""


WITH_ONE_PRODUCT = ("cuda", "triton", "c++", "cpu")
"""Engines with one matmul per step: those of a projection or an SRU are handled by `projected` and `doubled`."""


def choose(name: str, task: EngineTask, several: bool = False) -> Engine:
    """The engine with this name, or for "auto" the fastest one that can run the task and agrees with the loop.

    Args:
        name: Name of an engine, or "auto".
        task: Task to run.
        several: Whether more tasks of the same kind run with it.
    """
    if name == "auto":
        for engine in _preferred(task, several):
            fitted = fitted_to(engine, task)
            if _can_run(fitted, task) and _trusted(engine, task):
                return fitted
        raise AssertionError("the loop runs everything")
    engine = fitted_to(KNOWN[check_name(name)], task)
    reason = engine.refuses(task)
    if reason is not None:
        raise ValueError(f"expected a task that engine={name!r} can run, but {reason}")
    return engine


def fitted_to(engine: Engine, task: EngineTask) -> Engine:
    """The engine, wrapped if the task has a projection or an SRU cell that it does not support directly.

    Args:
        engine: The engine.
        task: The task.
    """
    if engine.name not in WITH_ONE_PRODUCT:
        return engine
    if isinstance(task.cell, SRUCell):
        return Doubled(engine)
    return Folding(engine) if is_projected(task) else engine


def _can_run(engine: Engine, task: EngineTask) -> bool:
    prepare(engine, task)
    return engine.refuses(task) is None


def _preferred(task: EngineTask, several: bool) -> list[Engine]:
    """Engines in the order in which "auto" tries them."""
    engines = list(KNOWN.values())
    if isinstance(task.cell, SRUCell):  # the loop is as fast as twice as many steps on the cpu engine
        engines.remove(KNOWN["cpu"])
    if not task.inputs.is_cuda:
        if _is_single_step(task):  # setting up an engine takes longer than the step
            return [KNOWN["torch"], KNOWN["loop"]]
        return [KNOWN["torch"], *engines] if _onednn_wins(task) or _torch_projects(task) else engines
    units = task.weights["weight_hr"].shape[-1] if is_projected(task) else task.width
    if units > TRITON_WINS and not several and not is_projected(task) and _triton_wins(task):
        engines[:2] = reversed(engines[:2])
    if (units <= CUDNN_WINS and not several) or (units > CUDNN_WINS_IN_FULL and _in_full(task)):
        engines.insert(1, KNOWN["torch"])
    return engines


def _is_single_step(task: EngineTask) -> bool:
    """Whether it is one step in inference, which `streaming` has not taken: of many sequences, or in float64."""
    return task.inputs.shape[0] == 1 and not tracked(task)


def _onednn_wins(task: EngineTask) -> bool:
    """Whether torch's LSTM, if it supports the gate, is the fastest on a CPU."""
    if not X86 or task.width <= ONEDNN_WINS or tracked(task):
        return False
    plain = isinstance(task.cell, LSTMCell) and "weight_hr" not in task.weights
    return plain and task.inputs.dtype == torch.float32


def _torch_projects(task: EngineTask) -> bool:
    """Whether torch's two matmuls, if it supports the gate, are cheaper than one with the folded matrix."""
    if not is_projected(task):
        return False
    left, units = task.weights["weight_hr"].shape
    return units > TORCH_PROJECTS and 3 * left < units


def _in_full(task: EngineTask) -> bool:
    """Whether matmuls are in full float32."""
    return task.inputs.dtype == torch.float32 and not tf32_in_recurrent_layers()


def _triton_wins(task: EngineTask) -> bool:
    """Whether the Triton kernels are faster than the cluster kernels, for a layer whose weights the latter stream."""
    if torch.compiler.is_compiling():
        return False
    inputs, blocks = task.inputs, task.weights["weight_hh"].shape[0] // task.width
    rows, chip = inputs.shape[1], tiling.chip(inputs.device)
    many = rows > 8 * cuda.at_once(chip.processors)
    return many and tiling.all_on_chip(task.width, rows, blocks, inputs.itemsize, chip)


def run(name: str, tasks: Sequence[EngineTask], pieces: int = 0) -> list[EngineResult]:
    """Run tasks of the same kind and shape, each with its own weights: in one launch if the engine supports it.

    Args:
        name: Name of an engine, or "auto".
        tasks: Tasks to run.
        pieces: Number of chunks for gradient checkpointing over time, see `run_in_pieces`; 0 for none.
    """
    first = tasks[0]
    if pieces and is_projected(first):  # every chunk but one has an initial state
        first = replace(first, state=first.first_state)
    engine = choose(name, first, several=len(tasks) > 1)
    if pieces and torch.is_grad_enabled() and obstacle() is None:
        return run_in_pieces(partial(run_all, engine), tasks, pieces)
    return run_all(engine, tasks)


def run_all(engine: Engine, tasks: Sequence[EngineTask]) -> list[EngineResult]:
    """Run tasks of the same kind and shape with this engine."""
    if len(tasks) == 1 or not runs_side_by_side(engine):
        return [engine.run(task) for task in tasks]
    return side_by_side.taken_apart(engine.run(side_by_side.stacked(tasks)))


def run_stacked(name: str, task: EngineTask) -> EngineResult:
    """Run tasks that are already stacked, with their number in front of every shape.

    Args:
        name: Name of an engine, or "auto".
        task: The stacked tasks.
    """
    engine = choose(name, side_by_side.first(task), several=len(task.inputs) > 1)
    if runs_side_by_side(engine):
        return engine.run(task)
    return side_by_side.put_together([engine.run(one) for one in side_by_side.each(task)])


_told: set[str] = set()


def _trusted(engine: Engine, task: EngineTask) -> bool:
    """Whether to use an engine that can run the task. If not, the reason is reported in one warning."""
    if engine is KNOWN["loop"]:
        reason = None
        if isinstance(task.cell, PointwiseCell):
            reason = no_formula(task.cell, task.inputs.dtype, task.dt is not None)
        if reason is not None:
            subject = derivation(task.cell).subject  # type: ignore[arg-type]
            _tell(f"no kernel can be derived for {subject}: {reason}; it runs on the loop engine, which is slow")
        return True
    if engine not in (KNOWN["cuda"], KNOWN["triton"], KNOWN["c++"]):
        return True
    reason = self_check(engine, task.inputs.device, family_of(task.cell))
    if reason is not None:
        _tell(f"{reason}; another engine is used")
    return reason is None


def _tell(message: str) -> None:
    if not torch.compiler.is_compiling() and message not in _told:  # a compiled graph warns when it runs
        _told.add(message)
        warnings.warn(message, stacklevel=2)
