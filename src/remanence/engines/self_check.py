"""Checks an engine once per kind of device, before "auto" uses it; the results are cached."""

from __future__ import annotations

from functools import lru_cache, partial

import torch
from torch import Tensor

from .. import gates
from ..cells import Cell, LSTMCell, PointwiseCell, SRUCell
from . import agreement
from .base import BY_HAND, Engine, EngineTask
from .comparison import FLOAT32, TF32, Precision, errors_of, own_error, undisturbed
from .machine import float32_products, tf32_in_recurrent_layers, threads
from .samples import SIZES, UNGATED, WIDE, gate_of, make_task, named, trained
from .transforms import obstacle

_seen: dict[tuple[str, str, str], str | None] = {}


def self_check(engine: Engine, device: torch.device, family: str = "") -> str | None:
    """Why an engine must not be used on this kind of device, as a sentence; None if it agrees with the loop.

    The check runs once per engine, family of cells and kind of device, with small float32 LSTMs (or cells of the
    family) in the matmul precision that torch is set to. It is skipped if it passed in an earlier process, see
    `agreement`. During CUDA graph capture, inside torch.func transforms and with fake tensors, no check runs and an
    earlier result is returned; while torch.compile traces, the result is None. There are no side effects: random state
    does not change.
    """
    if torch.compiler.is_compiling():
        return None
    key = (engine.name, kind_of(device), family)
    if key not in _seen:
        if not can_look(device):
            return None
        with undisturbed(device):
            precision = precision_of(device)
            what = f"{precision.name} {family}".strip()
            if agreement.is_known(engine, device, what):
                _seen[key] = None
            else:
                _seen[key] = look(engine, device, precision, family)
                if _seen[key] is None:
                    agreement.note(engine, device, what)
    return _seen[key]


POINTWISE = (PointwiseCell, SRUCell)


def family_of(cell: Cell) -> str:
    """The name of a cell with dedicated kernels; all other cells are one family with an empty name."""
    return "" if isinstance(cell, POINTWISE) else cell.name


def prepare(engine: Engine, task: EngineTask) -> None:
    """Compile in parallel the kernels of a task and those of a pending `self_check`, if the engine can."""
    if torch.compiler.is_compiling() or not hasattr(engine, "prepare"):
        return
    device = task.inputs.device
    if (engine.name, kind_of(device), "") not in _seen and can_look(device):
        engine.prepare(task, partial(to_be_looked_at, engine, device))


def to_be_looked_at(engine: Engine, device: torch.device) -> list[EngineTask]:
    """The tasks that `self_check` will run; empty if its result is cached."""
    with undisturbed(device):
        precision = precision_of(device)
        return [] if agreement.is_known(engine, device, precision.name) else tasks_of(device, precision)


@lru_cache
def kind_of(device: torch.device) -> str:
    """The model of a device, as far as results can depend on it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def can_look(device: torch.device) -> bool:
    """Whether tensors can be created and compared now."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return False
    return obstacle() is None and type(torch.empty(0, device=device)) is Tensor


def precision_of(device: torch.device) -> Precision:
    """The precision of float32 in recurrent layers, according to torch's settings."""
    return TF32 if device.type == "cuda" and tf32_in_recurrent_layers() else FLOAT32


def tasks_of(device: torch.device, precision: Precision, family: str = "") -> list[EngineTask]:
    """A power-law LSTM; on CUDA devices, where kernels depend on the input width, a plain LSTM before it."""
    if family:
        others = [cell for cell in UNGATED if cell.name == family]
        return [trained(make_task(cell, SIZES, precision.dtype, device)) for cell in others]
    cells = [(LSTMCell(gates.Sigmoid()), SIZES), (LSTMCell(gates.PowerLaw(), coupled=True), WIDE)]
    return [
        trained(make_task(cell, sizes, precision.dtype, device))
        for cell, sizes in (cells if device.type == "cuda" else cells[1:])
    ]


def look(engine: Engine, device: torch.device, precision: Precision, family: str = "") -> str | None:
    """Run the tasks of a self-check; on CUDA devices in threads, so that kernels compile in parallel."""
    tasks = [task for task in tasks_of(device, precision, family) if engine.refuses(task) is None]
    if device.type != "cuda":
        return next(filter(None, (disagreement(engine, task, precision) for task in tasks)), None)
    with threads(device) as pool:
        return next(filter(None, list(pool.map(lambda task: disagreement(engine, task, precision), tasks))), None)


def disagreement(engine: Engine, task: EngineTask, precision: Precision) -> str | None:
    """How an engine and the loop differ on a task, as a sentence; None if they agree."""
    device, cell = task.inputs.device, task.cell
    with undisturbed(device):  # again, because these modes are thread-local
        errors = errors_of(engine, task)
        wrong = errors if isinstance(errors, str) else errors.beyond(precision.tolerance)
        if wrong and not isinstance(errors, str) and type(cell) not in BY_HAND:
            with float32_products(precision.tf32):
                wrong = errors.beyond(max(precision.tolerance, 2 * own_error(task)))
    if not wrong:
        return None
    return (
        f'engine "{engine.name}" disagrees with the loop engine on {device} '
        f"({named(cell)}{f' with gate {gate_of(cell)}' if gate_of(cell) else ''}): {wrong}"
    )
