"""Cells and random tasks on which engines are compared.

Values come from a CPU generator: the same on every device, and global random state does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from .. import gates
from ..cells import (
    Cell,
    ComplexModReLUCell,
    GatedCell,
    GRUCell,
    JANETCell,
    LSTMCell,
    ModReLUCell,
    ModReLUGRUCell,
    NRUCell,
    PhasedLSTMCell,
    PointwiseCell,
    wide,
)
from .base import BY_HAND, EngineTask
from .machine import seeded


def every_cell() -> Iterator[GatedCell]:
    """Every gate in every cell that takes one."""
    for gate in gates.KNOWN.values():
        yield from cells_with(gate())


def cells_with(gate: gates.Gate) -> Iterator[GatedCell]:
    """A gate in every cell that takes one. The kernels of the last cell are derived as a whole, like custom cells."""
    yield LSTMCell(gate, coupled=False)
    yield LSTMCell(gate, coupled=True)
    yield GRUCell(gate)
    yield JANETCell(gate)
    yield PhasedLSTMCell(gate)


def layers_with(gate: gates.Gate) -> Iterator[GatedCell]:
    """The cells of all layers that take a gate, also those that `cells_with` leaves out."""
    yield from cells_with(gate)
    yield PhasedLSTMCell(gate, coupled=True)
    yield ModReLUGRUCell(gate)


def in_evaluation(cell: Cell) -> Cell:
    """The cell that a layer in evaluation mode runs."""
    return replace(cell, leak=0.0) if isinstance(cell, PhasedLSTMCell) else cell


BUILT: tuple[PointwiseCell, ...] = (ModReLUCell(), ComplexModReLUCell(), ModReLUGRUCell(gates.Sigmoid()))
"""Cells that construct their recurrent matrix; their kernels are derived as a whole."""
UNGATED: tuple[Cell, ...] = (NRUCell(memory_size=36, heads=4),)
"""Cells with dedicated kernels."""


class Sizes(NamedTuple):
    """T steps, B sequences, I inputs, H units."""

    steps: int
    batch: int
    inputs: int
    units: int


SIZES = Sizes(steps=9, batch=19, inputs=5, units=40)
"""Small, but with more sequences and units than one tile of a kernel holds, so that thread blocks exchange states."""
WIDE = SIZES._replace(inputs=20)
"""The same with inputs too wide for a kernel to multiply inside the recurrence."""


def make_task(
    cell: Cell,
    sizes: Sizes,
    dtype: torch.dtype,
    device: torch.device,
    *,
    seed: int = 0,
    irregular: bool = False,
    unequal: bool = False,
    reverse: bool = False,
) -> EngineTask:
    """A task with random weights, inputs and state.

    Args:
        cell: Cell to run.
        sizes: Sizes of the task.
        dtype: Dtype of inputs, hidden state and weights.
        device: Device of all tensors.
        seed: Random seed.
        irregular: Whether times between steps are random (dt).
        unequal: Whether sequences have random lengths.
        reverse: Whether to run from the last step to the first.
    """
    source = torch.Generator("cpu").manual_seed(seed)
    steps, batch, inputs, units = sizes
    shapes = cell.shapes(inputs, units, units, bias=True)
    weights = {
        name: draw(source, *shape) * (shape[-1] ** -0.5 if len(shape) == 2 else 0.5) for name, shape in shapes.items()
    }
    if type(cell) not in BY_HAND:
        start(cell, weights, seed)
    values = draw(source, steps, batch, inputs)
    state = {name: draw(source, batch, width) for name, width in cell.widths(units, units).items()}
    carried = cell.gate.carries if isinstance(cell, GatedCell) else ()
    dt = 0.2 + 3 * torch.rand(steps, batch, generator=source, dtype=torch.float64, device="cpu")
    lengths = torch.randint(1, steps + 1, (batch,), generator=source, device="cpu")
    lengths[0] = steps
    return EngineTask(
        cell=cell,
        weights={name: weight.to(device, dtype) for name, weight in weights.items()},
        inputs=values.to(device, dtype),
        state=tuple(
            (5 * part.abs() if name in carried else part.tanh()).to(device, dtype if name == "hidden" else wide(dtype))
            for name, part in state.items()
        ),
        dt=dt.to(device, wide(dtype)) if irregular else None,
        lengths=lengths.to(device) if unequal else None,
        reverse=reverse,
    )


def start(cell: Cell, weights: dict[str, Tensor], seed: int) -> None:
    """Apply the cell's own initialisation: a weight such as a period cannot be any random value."""
    with seeded(seed), torch.no_grad():
        cell.initialise(weights)


def draw(source: torch.Generator, *shape: int) -> Tensor:
    """Standard normal values in float64."""
    return torch.randn(shape, generator=source, dtype=torch.float64, device="cpu")


def trained(task: EngineTask) -> EngineTask:
    """The same task with gradients required, as in training: engines compile different kernels for that."""
    return replace(task, inputs=leaf(task.inputs))


def widened(task: EngineTask) -> EngineTask:
    """The same task in float64."""
    return replace(
        task,
        weights={name: weight.double() for name, weight in task.weights.items()},
        inputs=task.inputs.double(),
        state=tuple(part.double() for part in task.first_state),
        dt=None if task.dt is None else task.dt.double(),
    )


def leaf(tensor: Tensor) -> Tensor:
    """A copy as a leaf that requires a gradient."""
    return tensor.detach().clone().requires_grad_()


def named(cell: Cell) -> str:
    """A short name of the cell."""
    return f"{cell.name} coupled" if isinstance(cell, LSTMCell) and cell.coupled else cell.name


def gate_of(cell: Cell) -> str:
    """The name of the cell's gate; empty if it has none."""
    return cell.gate.name if isinstance(cell, GatedCell) else ""


def described(task: EngineTask) -> str:
    """The special features of a task, in words."""
    special = {
        "irregular steps": task.dt is not None,
        "unequal lengths": task.lengths is not None,
        "reverse": task.reverse,
    }
    return ", ".join(name for name, holds in special.items() if holds) or "plain sequences"
