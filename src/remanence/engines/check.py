"""Engines held to the loop engine on this machine: outputs, final states and every gradient.

The loop engine runs in float64 on the very numbers the other engine is given, so what is compared is the error of the
computation alone. An error is the norm of a difference over the norm of the truth, the largest of all tensors.
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
from .machine import device_named, devices, float32_products, tf32_in_recurrent_layers, threads
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
    """Largest relative error of a gradient: by inputs, first state, dt and every weight."""
    tolerance: float
    ok: bool
    reason: str | None = None
    """What is wrong, if something is."""


@dataclass(frozen=True)
class Precision:
    """A dtype, how exact its products are, and what error follows."""

    name: str
    dtype: torch.dtype
    tolerance: float
    """Of relative errors. Products are the coarsest part of a step; all pointwise work is float32 or wider."""
    tf32: bool = False
    """Whether float32 products are TF32 on CUDA devices."""


# One rounding is 2^-53 in float64, 2^-24 in float32, 2^-11 in TF32 and float16, 2^-8 in bfloat16. The narrow types are
# allowed four of them, TF32 eight because some hardware cuts digits off instead; a wrong formula shows as 1e-2 or more.
# The wide types are allowed far more: there exponentials, sums over steps, and the three TF32 products that may stand
# for a full one lose digits too, and errors seen are still ten times smaller.
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
"""Small, and yet more rows and units than one tile of a kernel holds: its thread blocks must exchange states."""
WIDE = SIZES._replace(inputs=20)
"""The same with inputs that no kernel multiplies on its way."""


def check(
    device: str | torch.device | None = None,
    engines: Sequence[str] | None = None,
    gate: str | gates.Gate | None = None,
    cell: PointwiseCell | None = None,
) -> list[Row]:
    """Hold every engine to the loop engine.

    Args:
        device: where; by default the CPU and, where there is one, the CUDA device.
        engines: names of those to check, if not all.
        gate: the only gate to check, by its name or as an object, such as one of your own; by default all that have a
            name.
        cell: the only cell to check, such as one of your own, with the gate that it has.

    Returns:
        A row per engine, cell, gate and precision that can run there. Nothing is changed, not even random state.
    """
    return list(rows(device, engines, gate, cell))


def rows(
    device: str | torch.device | None = None,
    engines: Sequence[str] | None = None,
    gate: str | gates.Gate | None = None,
    cell: PointwiseCell | None = None,
) -> Iterator[Row]:
    """The rows of `check`, one by one: the first use of a kernel compiles, which takes a while."""
    every = (*every_cell(), *BUILT, *UNGATED) if gate is None else cells_with(gates.gate_named(gate))
    cells = list(every) if cell is None else [cell]
    for place in devices() if device is None else [device_named(device)]:
        for engine in checked(engines):
            for precision in PRECISIONS[place.type]:
                yield from (row for row in every_row(engine, cells, precision, place) if row is not None)


def every_row(
    engine: Engine, cells: Sequence[Cell], precision: Precision, device: torch.device
) -> Iterable[Row | None]:
    """A row, or None, for every cell. On CUDA devices in threads, so that kernels compile side by side."""
    if device.type != "cuda":
        return (compare(engine, cell, precision, device) for cell in cells)
    # torch's own engine compiles nothing, and what it keeps quiet would be heard from other threads.
    most = 1 if engine.name == "torch" else 8
    with float32_products(precision.tf32), threads(device, most) as pool:
        return list(pool.map(lambda cell: compare(engine, cell, precision, device), cells))


def refusals(device: str | torch.device | None = None, engines: Sequence[str] | None = None) -> dict[str, str]:
    """Engines that cannot run a plain float32 LSTM on any of the devices, and why, as the end of a sentence."""
    places = devices() if device is None else [device_named(device)]
    found = {}
    for engine in checked(engines):
        tasks = [make_task(LSTMCell(gates.Sigmoid()), SIZES, torch.float32, place) for place in places]
        reasons = [engine.refuses(task) for task in tasks]
        if None not in reasons:
            found[engine.name] = str(reasons[-1])
    return found


def checked(names: Sequence[str] | None = None) -> list[Engine]:
    """The engines of these names, or all, but the loop."""
    known = {name: engine for name, engine in KNOWN.items() if name != "loop"}
    return list(known.values()) if names is None else [lookup("engine", name, known) for name in names]


def every_cell() -> Iterator[GatedCell]:
    """Every gate in every cell that takes one."""
    for gate in gates.KNOWN.values():
        yield from cells_with(gate())


def cells_with(gate: gates.Gate) -> Iterator[GatedCell]:
    """A gate in every cell that takes one; the last is derived as a whole, like those of users."""
    yield LSTMCell(gate, coupled=False)
    yield LSTMCell(gate, coupled=True)
    yield GRUCell(gate)
    yield JANETCell(gate)
    yield PhasedLSTMCell(gate)


BUILT: tuple[PointwiseCell, ...] = (ModReLUCell(), ComplexModReLUCell(), ModReLUGRUCell(gates.Sigmoid()))
"""The recurrences of cells that build their matrix, derived as a whole."""
UNGATED: tuple[Cell, ...] = (NRUCell(memory_size=36, heads=4),)
"""Cells with kernels of their own."""


def compare(engine: Engine, cell: Cell, precision: Precision, device: torch.device) -> Row | None:
    """A row over those variants the engine takes; None if it takes none. Precision of products is as torch is set."""
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
    """The same as one that wants gradients, as it will: engines compile for that."""
    return replace(task, inputs=leaf(task.inputs))


# Once per engine and kind of device, before it is trusted.

_seen: dict[tuple[str, str, str], str | None] = {}


def self_check(engine: Engine, device: torch.device, family: str = "") -> str | None:
    """Why an engine is not to be trusted on this kind of device, as a sentence; None if it agrees with the loop.

    Looks once per engine, family of cells and kind of device, at small LSTMs, or what else the family is, in float32,
    in the precision torch is set to; and not at all where it agreed in an earlier process, see `agreement`. While a
    graph is captured, torch.func transforms or tensors are fake, it looks at nothing and says what it saw before; while
    a compiler traces, it says None. Changes nothing, not even random state.
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


def family_of(cell: Cell) -> str:
    """Cells that run on kernels of their own by name; all others are one family, without a name."""
    return "" if isinstance(cell, PointwiseCell | SRUCell) else cell.name


def prepare(engine: Engine, task: EngineTask) -> None:
    """Let an engine that can compile side by side what a task needs, and what `self_check` needs if it will look."""
    if torch.compiler.is_compiling() or not hasattr(engine, "prepare"):
        return
    device = task.inputs.device
    if (engine.name, kind_of(device), "") not in _seen and can_look(device):
        engine.prepare(task, partial(to_be_looked_at, engine, device))


def to_be_looked_at(engine: Engine, device: torch.device) -> list[EngineTask]:
    """The tasks at which `self_check` will look; none if it knows."""
    with undisturbed(device):
        precision = precision_of(device)
        return [] if agreement.is_known(engine, device, precision.name) else tasks_of(device, precision)


@lru_cache
def kind_of(device: torch.device) -> str:
    """What the device is, as far as results can depend on it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def can_look(device: torch.device) -> bool:
    """Whether tensors can be made and compared now."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return False
    return obstacle() is None and type(torch.empty(0, device=device)) is Tensor


def precision_of(device: torch.device) -> Precision:
    """That of float32 in recurrent layers, as torch is set."""
    return TF32 if device.type == "cuda" and tf32_in_recurrent_layers() else FLOAT32


def tasks_of(device: torch.device, precision: Precision, family: str = "") -> list[EngineTask]:
    """A power-law LSTM, and on CUDA devices, where kernels depend on how wide inputs are, a plain one before it."""
    if family:
        others = [cell for cell in UNGATED if cell.name == family]
        return [trained(make_task(cell, SIZES, precision.dtype, device)) for cell in others]
    cells = [(LSTMCell(gates.Sigmoid()), SIZES), (LSTMCell(gates.PowerLaw(), coupled=True), WIDE)]
    return [
        trained(make_task(cell, sizes, precision.dtype, device))
        for cell, sizes in (cells if device.type == "cuda" else cells[1:])
    ]


def look(engine: Engine, device: torch.device, precision: Precision, family: str = "") -> str | None:
    """Compare them; on CUDA devices in threads, so that kernels compile side by side."""
    tasks = [task for task in tasks_of(device, precision, family) if engine.refuses(task) is None]
    if device.type != "cuda":
        return next(filter(None, (disagreement(engine, task, precision) for task in tasks)), None)
    with threads(device) as pool:
        return next(filter(None, list(pool.map(lambda task: disagreement(engine, task, precision), tasks))), None)


def disagreement(engine: Engine, task: EngineTask, precision: Precision) -> str | None:
    """In what an engine and the loop differ at a task, as a sentence."""
    device, cell = task.inputs.device, task.cell
    with undisturbed(device):  # what a caller is in is of its thread
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
    """The caller's no_grad, inference mode, autocast, modes and hooks of checkpoints, and present device put aside."""
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
        """The first error above the tolerance, in words. NaN is above it."""
        found = self.values | {f"gradient of {name}": error for name, error in self.gradients.items()}
        for name, error in found.items():
            if not error <= tolerance:
                return f"{name} is off by {error:.1e}, where {tolerance:.0e} is allowed"
        return None


def errors_of(engine: Engine, task: EngineTask) -> Errors | str:
    """Errors of an engine at a task, or what it raised."""
    true_values, true_gradients = run(cast(Engine, loop), widened(task), task.inputs.dtype)
    try:
        values, gradients = run(engine, task, task.inputs.dtype)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # what a new kind of device makes of a kernel is a finding
        return f"it raised {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return Errors(relative(values, true_values), relative(gradients, true_gradients))


def own_error(task: EngineTask) -> float:
    """What the loop itself is off by in the dtype of a task: a cell may magnify what one rounding leaves."""
    errors = errors_of(cast(Engine, loop), task)
    return math.inf if isinstance(errors, str) else worst(*errors.values.values(), *errors.gradients.values())


def run(engine: Engine, task: EngineTask, dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Values and gradients by name, for random derivatives of a loss by outputs and final state, rounded to dtype."""
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
    # Of a sum: for directions torch would import sympy, which takes longer than all else here.
    shares = [(value * by).sum().double() for value, by in zip(values.values(), directions, strict=True)]
    loss = torch.stack(shares).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return {name: value.detach() for name, value in values.items()}, dict(zip(leaves, gradients, strict=True))


def leaf(tensor: Tensor) -> Tensor:
    """The same numbers as the start of a graph."""
    return tensor.detach().clone().requires_grad_()


def relative(found: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> dict[str, float]:
    """Norm of the difference over norm of the truth, by name."""
    errors = {}
    for name, true in truth.items():
        scale = float(true.norm()) or 1.0
        errors[name] = float((found[name].double() - true).norm()) / scale
    return errors


def worst(*errors: float) -> float:
    """The largest; NaN if there is one."""
    return math.nan if any(math.isnan(error) for error in errors) else max(errors)


# Random tasks. Numbers come from a generator on the CPU: the same on every device, and no other random state moves.


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
        cell: what runs.
        sizes: how large.
        dtype: of inputs, hidden state and weights.
        device: where.
        seed: which one.
        irregular: whether steps take random times.
        unequal: whether sequences end at random steps.
        reverse: whether it runs from the end.
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
    """Give a cell those weights that it starts with: a period, say, is no random number."""
    with torch.random.fork_rng(devices=()), torch.no_grad():
        torch.manual_seed(seed)
        cell.initialise(weights)


def draw(source: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(shape, generator=source, dtype=torch.float64, device="cpu")


def widened(task: EngineTask) -> EngineTask:
    """The same numbers in float64."""
    return replace(
        task,
        weights={name: weight.double() for name, weight in task.weights.items()},
        inputs=task.inputs.double(),
        state=tuple(part.double() for part in task.first_state),
        dt=None if task.dt is None else task.dt.double(),
    )


def named(cell: Cell) -> str:
    """The cell in a word or two."""
    return f"{cell.name} coupled" if isinstance(cell, LSTMCell) and cell.coupled else cell.name


def gate_of(cell: Cell) -> str:
    """The name of its gate, empty where it has none."""
    return cell.gate.name if isinstance(cell, GatedCell) else ""


def described(task: EngineTask) -> str:
    """What is special about a task."""
    special = {
        "irregular steps": task.dt is not None,
        "unequal lengths": task.lengths is not None,
        "reverse": task.reverse,
    }
    return ", ".join(name for name, holds in special.items() if holds) or "plain sequences"
