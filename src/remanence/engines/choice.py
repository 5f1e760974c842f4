"""Which engine runs a task."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from ..cells import LSTMCell, PointwiseCell, SRUCell
from . import cuda, side_by_side
from .base import Engine, EngineResult, EngineTask
from .check import family_of, prepare, self_check
from .doubled import Doubled
from .kernels.contract import derivation, no_formula
from .kernels.run import tracked
from .machine import X86, tf32_in_recurrent_layers
from .pieces import run_in_pieces
from .projected import Folding, is_projected
from .table import KNOWN, check_name, runs_side_by_side
from .transforms import obstacle
from .triton import tiling

CUDNN_WINS = 128
"""Up to so many units cuDNN keeps a plain LSTM or GRU on chip and is a little faster than Triton's kernels."""
CUDNN_WINS_IN_FULL = 256
"""Above so many units it is in full float32, for which Triton's kernels stream two numbers for every one."""


ONEDNN_WINS = 256
"""Above so many units torch's inference with a plain LSTM is faster than compiled steps: on x86, where oneDNN does it,
without a projection."""


TORCH_PROJECTS = 256
"""Above so many units on a CPU a step is arithmetic, of which the product of both matrices of a small projection, see
`projected`, has more than torch's LSTM."""


TRITON_WINS = 768
"""Above so many units clusters read a part of the matrix in every step, and Triton's kernels, where they have all of it
on chip, win with more rows than are in clusters at once."""


WITH_ONE_PRODUCT = ("cuda", "triton", "c++", "cpu")
"""Engines that have one product a step, and no other of a projection or an SRU: see `projected` and `doubled`."""


def choose(name: str, task: EngineTask, several: bool = False) -> Engine:
    """The engine of that name, or for "auto" the fastest one that can run the task and agrees with the loop.

    Args:
        name: "auto", or an engine's.
        task: what is to be run.
        several: whether there are more tasks like it.
    """
    if name == "auto":
        candidates = ((engine, fitted_to(engine, task)) for engine in _preferred(task, several))
        return next(fitted for engine, fitted in candidates if _can_run(fitted, task) and _trusted(engine, task))
    engine = fitted_to(KNOWN[check_name(name)], task)
    reason = engine.refuses(task)
    if reason is not None:
        raise ValueError(f"expected a task that engine={name!r} can run, but {reason}")
    return engine


def fitted_to(engine: Engine, task: EngineTask) -> Engine:
    """The engine as it takes such tasks."""
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
    if isinstance(task.cell, SRUCell):  # of which the loop is as fast as twice as many steps of this one
        engines.remove(KNOWN["cpu"])
    if not task.inputs.is_cuda:
        return [KNOWN["torch"], *engines] if _onednn_wins(task) or _torch_projects(task) else engines
    units = task.weights["weight_hr"].shape[-1] if is_projected(task) else task.width
    if units > TRITON_WINS and not several and not is_projected(task) and _triton_wins(task):
        engines[:2] = reversed(engines[:2])
    if (units <= CUDNN_WINS and not several) or (units > CUDNN_WINS_IN_FULL and _in_full(task)):
        engines.insert(1, KNOWN["torch"])
    return engines


def _onednn_wins(task: EngineTask) -> bool:
    """Whether torch's LSTM, where it has the gate, is the fastest on a CPU."""
    if not X86 or task.width <= ONEDNN_WINS or tracked(task):
        return False
    plain = isinstance(task.cell, LSTMCell) and "weight_hr" not in task.weights
    return plain and task.inputs.dtype == torch.float32


def _torch_projects(task: EngineTask) -> bool:
    """Whether torch's two products, where it has the gate, take less than the one of both matrices."""
    if not is_projected(task):
        return False
    left, units = task.weights["weight_hr"].shape
    return units > TORCH_PROJECTS and 3 * left < units


def _in_full(task: EngineTask) -> bool:
    """Whether products are of full float32."""
    return task.inputs.dtype == torch.float32 and not tf32_in_recurrent_layers()


def _triton_wins(task: EngineTask) -> bool:
    """Whether Triton's kernels are faster than clusters, for a layer that these stream."""
    if torch.compiler.is_compiling():
        return False
    inputs, blocks = task.inputs, task.weights["weight_hh"].shape[0] // task.width
    rows, chip = inputs.shape[1], tiling.chip(inputs.device)
    many = rows > 8 * cuda.at_once(chip.processors)
    return many and tiling.all_on_chip(task.width, rows, blocks, inputs.itemsize, chip)


def run(name: str, tasks: Sequence[EngineTask], pieces: int = 0) -> list[EngineResult]:
    """Run tasks of one kind and shape, each with weights of its own: in one launch where the engine can.

    Args:
        name: "auto", or an engine's.
        tasks: what to run.
        pieces: if any, in how many pieces to run what is to be differentiated backward, see `run_in_pieces`.
    """
    first = tasks[0]
    if pieces and is_projected(first):  # all pieces but one have a state
        first = replace(first, state=first.first_state)
    engine = choose(name, first, several=len(tasks) > 1)
    if pieces and torch.is_grad_enabled() and obstacle() is None:
        return run_in_pieces(partial(run_all, engine), tasks, pieces)
    return run_all(engine, tasks)


def run_all(engine: Engine, tasks: Sequence[EngineTask]) -> list[EngineResult]:
    """Run them with this engine."""
    if len(tasks) == 1 or not runs_side_by_side(engine):
        return [engine.run(task) for task in tasks]
    return side_by_side.taken_apart(engine.run(side_by_side.stacked(tasks)))


def run_stacked(name: str, task: EngineTask) -> EngineResult:
    """The same for tasks that are one already, with their number in front of every shape."""
    engine = choose(name, side_by_side.first(task), several=len(task.inputs) > 1)
    if runs_side_by_side(engine):
        return engine.run(task)
    return side_by_side.put_together([engine.run(one) for one in side_by_side.each(task)])


_told: set[str] = set()


def _trusted(engine: Engine, task: EngineTask) -> bool:
    """Whether to use an engine that says it can run the task. What keeps one from being used is told once."""
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
    if not torch.compiler.is_compiling() and message not in _told:  # then what is compiled tells it, when it runs
        _told.add(message)
        warnings.warn(message, stacklevel=2)
