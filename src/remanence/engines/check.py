"""Compares engines with the loop engine on this machine: a row per engine, cell, gate and precision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from .. import gates
from ..cells import Cell, LSTMCell, PointwiseCell
from ..names import lookup
from .base import BY_HAND, Engine, EngineTask
from .comparison import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FULL,
    TF32,
    Precision,
    errors_of,
    own_error,
    undisturbed,
    worst,
)
from .machine import device_named, devices, float32_products, threads
from .samples import (
    BUILT,
    SIZES,
    UNGATED,
    WIDE,
    cells_with,
    described,
    every_cell,
    gate_of,
    make_task,
    named,
    trained,
)
from .table import KNOWN

PRECISIONS = {
    "cpu": (FLOAT64, FLOAT32, BFLOAT16, FLOAT16),
    "cuda": (FLOAT64, FULL, TF32, BFLOAT16, FLOAT16),
}


@dataclass(frozen=True)
class Row:
    """One cell with one gate in one precision on one engine."""

    device: str
    engine: str
    cell: str
    gate: str
    dtype: str
    error_values: float
    """Largest relative error of the outputs and the state after the last step."""
    error_gradients: float
    """Largest relative error of a gradient: with respect to inputs, initial state, dt and every weight."""
    tolerance: float
    ok: bool
    reason: str | None = None
    """What is wrong; None if nothing is."""


def check(
    device: str | torch.device | None = None,
    engines: Sequence[str] | None = None,
    gate: str | gates.Gate | None = None,
    cell: PointwiseCell | None = None,
) -> list[Row]:
    """Compare every engine with the loop engine: outputs, final states and gradients.

    Args:
        device: Device to check; by default the CPU and, if there is one, the current CUDA device.
        engines: Names of the engines to check; by default all.
        gate: The only gate to check, by name or as an object (a custom gate, for example); by default all registered
            gates.
        cell: The only cell to check (a custom cell, for example), with its own gate.

    Returns:
        A row per engine, cell, gate and precision that can run there. There are no side effects: random state does not
        change.
    """
    return list(rows(device, engines, gate, cell))


def rows(
    device: str | torch.device | None = None,
    engines: Sequence[str] | None = None,
    gate: str | gates.Gate | None = None,
    cell: PointwiseCell | None = None,
) -> Iterator[Row]:
    """The rows of `check` as an iterator, because compiling kernels on first use takes a while."""
    every = (*every_cell(), *BUILT, *UNGATED) if gate is None else cells_with(gates.gate_named(gate))
    cells = list(every) if cell is None else [cell]
    for place in devices() if device is None else [device_named(device)]:
        for engine in checked(engines):
            for precision in PRECISIONS[place.type]:
                yield from (row for row in every_row(engine, cells, precision, place) if row is not None)


def every_row(
    engine: Engine, cells: Sequence[Cell], precision: Precision, device: torch.device
) -> Iterable[Row | None]:
    """A row, or None, for every cell. On CUDA devices in threads, so that kernels compile in parallel."""
    if device.type != "cuda":
        return (compare(engine, cell, precision, device) for cell in cells)
    # torch's own engine compiles nothing, and the warnings it suppresses would be shown by other threads.
    most = 1 if engine.name == "torch" else 8
    with float32_products(precision.tf32), threads(device, most) as pool:
        return list(pool.map(lambda cell: compare(engine, cell, precision, device), cells))


def refusals(device: str | torch.device | None = None, engines: Sequence[str] | None = None) -> dict[str, str]:
    """Engines that cannot run a plain float32 LSTM on any of the devices, with the reason as the end of a sentence."""
    places = devices() if device is None else [device_named(device)]
    found = {}
    for engine in checked(engines):
        tasks = [make_task(LSTMCell(gates.Sigmoid()), SIZES, torch.float32, place) for place in places]
        reasons = [engine.refuses(task) for task in tasks]
        if None not in reasons:
            found[engine.name] = str(reasons[-1])
    return found


def checked(names: Sequence[str] | None = None) -> list[Engine]:
    """The engines with these names, or all, except the loop."""
    known = {name: engine for name, engine in KNOWN.items() if name != "loop"}
    return list(known.values()) if names is None else [lookup("engine", name, known) for name in names]


def compare(engine: Engine, cell: Cell, precision: Precision, device: torch.device) -> Row | None:
    """A row over the variants that the engine supports, or None. Matmul precision follows torch's settings."""
    row = Row(str(device), engine.name, named(cell), gate_of(cell), precision.name, 0, 0, precision.tolerance, True)
    with undisturbed(device):
        tasks = [task for task in variants(cell, precision.dtype, device) if engine.refuses(task) is None]
        for task in tasks:
            errors = errors_of(engine, task)
            if isinstance(errors, str):
                return replace(row, error_values=math.nan, error_gradients=math.nan, ok=False, reason=errors)
            allowed, wrong = row.tolerance, errors.beyond(row.tolerance)
            if wrong and type(cell) not in BY_HAND:
                allowed = max(row.tolerance, 2 * own_error(task))
                wrong = errors.beyond(allowed)
            row = replace(
                row,
                tolerance=allowed,
                error_values=worst(row.error_values, *errors.values.values()),
                error_gradients=worst(row.error_gradients, *errors.gradients.values()),
                ok=row.ok and wrong is None,
                reason=row.reason or (wrong and f"{described(task)}: {wrong}"),
            )
    return row if tasks else None


def variants(cell: Cell, dtype: torch.dtype, device: torch.device) -> Iterator[EngineTask]:
    """Forward over full sequences of unit steps, and backward over sequences of unequal length and irregular steps."""
    yield trained(make_task(cell, SIZES, dtype, device))
    yield trained(make_task(cell, WIDE, dtype, device, seed=1, irregular=cell.takes_dt, unequal=True, reverse=True))
