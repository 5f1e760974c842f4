"""Compares an engine with the loop engine on one task: outputs, final state and every gradient.

The loop engine runs in float64 on exactly the same input values, so the comparison shows the error of the computation
alone. The error of a tensor is the norm of the difference divided by the norm of the reference; the largest one counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ..gates.sound import alone
from . import loop
from .base import Engine, EngineTask
from .samples import draw, leaf, widened


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


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Suspend the caller's no_grad, inference mode, autocast, modes, checkpoint hooks and current device."""
    with ExitStack() as stack:
        stack.enter_context(alone())
        stack.enter_context(torch.autocast(device.type, enabled=False))
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        yield
