"""The fast engine for CPUs: backpropagation through time in preallocated buffers, with torch operations alone.

The input projections of many steps are one matmul, and so is the gradient of each weight. Each step of the forward pass
is only the recurrent matmul and the pointwise update, in place; each step of the backward pass is only the recurrent
matmul and a few multiplications, see `cells.base`. No compiler is needed.

    __init__    which tasks it refuses, and running a task
    autograd    the engine as one autograd function
    forward, backward    loops over the stretches (chunks of time steps) of a sequence, and the matmuls outside the loop
    cells       a forward step and the coefficients of a backward step: hand-written for LSTM and GRU, others derived
    gate        the same for any gate, from its formula; program: formulas as torch operations
    history, buffers    memory layout
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...cells import PointwiseCell
from ..base import EngineResult, EngineTask
from ..kernels.contract import derivation, for_every_unit, no_formula, one_a_sequence
from ..outline import Outline
from ..transforms import obstacle
from ..untraced import untraced
from . import cells
from .autograd import Recurrence, flatten
from .forward import forward
from .history import Arguments, CellRun

name = "cpu"

DTYPES = (torch.float32, torch.float64)


def refuses(task: EngineTask) -> str | None:
    """Why it cannot run a task; None if it can. It runs in float32 and float64 on the CPU."""
    cell, inputs = task.cell, task.inputs
    if not isinstance(cell, PointwiseCell):
        return f"it runs cells with one recurrent matmul and a pointwise update, and {cell.name} is not one"
    if inputs.dtype not in DTYPES:
        return f"it runs in float32 and float64, and the input is {inputs.dtype}"
    reason = no_formula(cell, inputs.dtype, task.dt is not None)
    if reason is not None:
        return f"it has no formula for {derivation(cell).subject}: {reason}"
    if "weight_hr" in task.weights:
        return "it does not support projections (proj_size)"
    if inputs.device.type != "cpu":
        return f"it runs on the CPU, and the input is on {inputs.device}"
    return obstacle(() if torch.compiler.is_compiling() else task.tensors)


@untraced  # torch.compile would gain nothing, and would unroll the loop
def run(task: EngineTask) -> EngineResult:
    """Run a task."""
    with torch.autocast("cpu", enabled=False):
        plan, given = _arrange(task)
        tensors = flatten(given)
        if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
            output, *state = Recurrence.apply(plan, Outline.of(task), len(tensors), *tensors, *task.tensors)  # type: ignore[no-untyped-call]
        else:
            history, rest = forward(plan, given, keep=False)
            output, *state = history.output(plan), *rest
        if plan.padded is not None:
            output = output.masked_fill(plan.padded, 0)
        return EngineResult(output, one_a_sequence(derivation(plan.kernel.cell).single, tuple(state)))


def _arrange(task: EngineTask) -> tuple[CellRun, Arguments]:
    cell, dtype = task.cell, task.inputs.dtype
    assert isinstance(cell, PointwiseCell)
    dt = None if task.dt is None else task.dt.to(dtype).unsqueeze(-1)
    kernel = cells.kernel_of(cell, dt is not None, dtype)
    weights = kernel.arrange(task.weights)
    given = Arguments(
        task.inputs,
        dt,
        weights.weight_ih,
        weights.weight_hh,
        weights.bias,
        weights.bias_hh,
        tuple(weights.per_unit.values()),
        for_every_unit(derivation(cell).single, tuple(part.to(dtype) for part in task.first_state)),
    )
    return CellRun(kernel, task.reverse, _padding(task), tuple(weights.per_unit)), given


def _padding(task: EngineTask) -> Tensor | None:
    """`(T, B, 1)`: whether a step lies past the end of its sequence; None if no step does."""
    if task.lengths is None:
        return None
    steps = torch.arange(len(task.inputs), device="cpu").unsqueeze(-1)
    padded = steps >= task.lengths
    return padded.unsqueeze(-1) if padded.any() else None
