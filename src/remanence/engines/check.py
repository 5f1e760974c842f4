"""Compares engines with the loop engine on this machine: outputs, final states and every gradient.

The loop engine runs in float64 on exactly the same input values, so the comparison shows the error of the computation
alone. The error of a tensor is the norm of the difference divided by the norm of the reference; the largest one counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple, cast

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
    SRUCell,
    wide,
)
from ..gates.sound import alone
from ..names import lookup
from . import agreement, loop
from .base import Engine, EngineTask
from .kernels.contract import BY_HAND
from .machine import device_named, devices, float32_products, seeded, tf32_in_recurrent_layers, threads
from .table import KNOWN
from .transforms import obstacle


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


@dataclass(frozen=True)
class Precision:
    """A dtype, the precision of its matmuls, and the error that is allowed."""

    name: str
    dtype: torch.dtype
    tolerance: float
    """Largest relative error. Matmuls are the least precise part of a step; pointwise work is float32 or wider."""
    tf32: bool = False
    """Whether float32 matmuls use TF32 on CUDA devices."""


# One rounding is 2^-53 in float64, 2^-24 in float32, 2^-11 in TF32 and float16, 2^-8 in bfloat16. The narrow types are
# allowed four roundings, TF32 eight because some hardware truncates instead; a wrong formula shows as 1e-2 or more.
# The wide types are allowed far more: exponentials, sums over steps, and the three TF32 matmuls that may emulate a full
# float32 one lose precision too. Errors seen in practice are still ten times smaller.
FLOAT64 = Precision("float64", torch.float64, 1e-12)
FLOAT32 = Precision("float32", torch.float32, 1e-5)
FULL = replace(FLOAT32, name="float32 (full)")
TF32 = Precision("float32 (tf32)", torch.float32, 4e-3, tf32=True)
BFLOAT16 = Precision("bfloat16", torch.bfloat16, 1.6e-2)
FLOAT16 = Precision("float16", torch.float16, 2e-3)

PRECISIONS = {
    "cpu": (FLOAT64, FLOAT32, BFLOAT16, FLOAT16),
    "cuda": (FLOAT64, FULL, TF32, BFLOAT16, FLOAT16),
}


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


BUILT: tuple[PointwiseCell, ...] = (ModReLUCell(), ComplexModReLUCell(), ModReLUGRUCell(gates.Sigmoid()))
"""Cells that construct their recurrent matrix; their kernels are derived as a whole."""
UNGATED: tuple[Cell, ...] = (NRUCell(memory_size=36, heads=4),)
"""Cells with dedicated kernels."""


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


def trained(task: EngineTask) -> EngineTask:
    """The same task with gradients required, as in training: engines compile different kernels for that."""
    return replace(task, inputs=leaf(task.inputs))


# Self-check, once per engine and kind of device, before "auto" uses an engine.

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


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Suspend the caller's no_grad, inference mode, autocast, modes, checkpoint hooks and current device."""
    with ExitStack() as stack:
        stack.enter_context(alone())
        stack.enter_context(torch.autocast(device.type, enabled=False))
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        yield


# One task on two engines.


class Errors(NamedTuple):
    """Relative errors by name."""

    values: dict[str, float]
    gradients: dict[str, float]

    def beyond(self, tolerance: float) -> str | None:
        """The first error above the tolerance, in words. NaN counts as above it."""
        found = self.values | {f"gradient of {name}": error for name, error in self.gradients.items()}
        for name, error in found.items():
            if not error <= tolerance:
                return f"{name} is off by {error:.1e}, where {tolerance:.0e} is allowed"
        return None


def errors_of(engine: Engine, task: EngineTask) -> Errors | str:
    """Errors of an engine on a task, or a description of the exception that it raised."""
    true_values, true_gradients = run(cast(Engine, loop), widened(task), task.inputs.dtype)
    try:
        values, gradients = run(engine, task, task.inputs.dtype)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a kernel that fails on a new kind of device is a result of the check
        return f"it raised {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return Errors(relative(values, true_values), relative(gradients, true_gradients))


def own_error(task: EngineTask) -> float:
    """The error of the loop engine itself in the dtype of a task: a cell may amplify rounding errors."""
    errors = errors_of(cast(Engine, loop), task)
    return math.inf if isinstance(errors, str) else worst(*errors.values.values(), *errors.gradients.values())


def run(engine: Engine, task: EngineTask, dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Values and gradients by name, for random upstream gradients of outputs and final state, rounded to dtype."""
    weights = {name: leaf(weight) for name, weight in task.weights.items()}
    task = replace(
        task,
        weights=weights,
        inputs=leaf(task.inputs),
        state=tuple(leaf(part) for part in task.first_state),
        dt=None if task.dt is None else leaf(task.dt),
    )
    units = task.width
    parts = tuple(task.cell.widths(units, units))
    leaves = {
        "input": task.inputs,
        **{f"first {name}": part for name, part in zip(parts, task.first_state, strict=True)},
    }
    leaves |= weights if task.dt is None else {"dt": task.dt, **weights}

    result = engine.run(task)
    values = {
        "output": result.output,
        **{f"final {name}": part for name, part in zip(parts, result.state, strict=True)},
    }
    source = torch.Generator("cpu").manual_seed(2)
    directions = [draw(source, *value.shape).to(dtype).to(value) for value in values.values()]
    # Differentiate a scalar: with grad_outputs torch would import sympy, which takes longer than everything else here.
    shares = [(value * by).sum().double() for value, by in zip(values.values(), directions, strict=True)]
    loss = torch.stack(shares).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return {name: value.detach() for name, value in values.items()}, dict(zip(leaves, gradients, strict=True))


def leaf(tensor: Tensor) -> Tensor:
    """A copy as a leaf that requires a gradient."""
    return tensor.detach().clone().requires_grad_()


def relative(found: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> dict[str, float]:
    """Norm of the difference divided by the norm of the reference, by name."""
    errors = {}
    for name, true in truth.items():
        scale = float(true.norm()) or 1.0
        errors[name] = float((found[name].double() - true).norm()) / scale
    return errors


def worst(*errors: float) -> float:
    """The largest error; NaN if any is NaN."""
    return math.nan if any(math.isnan(error) for error in errors) else max(errors)


# Random tasks. Values come from a CPU generator: the same on every device, and global random state does not change.


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


def widened(task: EngineTask) -> EngineTask:
    """The same task in float64."""
    return replace(
        task,
        weights={name: weight.double() for name, weight in task.weights.items()},
        inputs=task.inputs.double(),
        state=tuple(part.double() for part in task.first_state),
        dt=None if task.dt is None else task.dt.double(),
    )


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
