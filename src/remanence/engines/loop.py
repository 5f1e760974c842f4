"""The reference engine: a Python loop over time, differentiated by autograd. It defines what other engines compute."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from ..cells import wide
from .base import EngineResult, EngineTask
from .untraced import untraced

name = "loop"


def refuses(task: EngineTask) -> str | None:
    """None: it runs every task."""
    return None


def run(task: EngineTask) -> EngineResult:
    """Run a task step by step."""
    return record(task, watch=False)[0]


@untraced  # torch.compile would unroll the loop, and compile time would grow with the sequence length
def record(task: EngineTask, watch: bool = True) -> tuple[EngineResult, dict[str, Tensor]]:
    """Run a task and record gates and states: tensors `(T, B, H)` by name, zero past the end of a sequence."""
    steps = task.inputs.shape[0]
    dtype = task.inputs.dtype
    with no_autocast(task.inputs.device.type):
        projected = task.cell.project(task.inputs, task.weights)
        state = tuple(part.to(wide(dtype)) for part in task.first_state)
        dt = None if task.dt is None else task.dt.to(wide(dtype)).unsqueeze(-1)
        outputs: list[Tensor] = []
        seen: list[Mapping[str, Tensor]] = []

        for t in reversed(range(steps)) if task.reverse else range(steps):
            after, values = task.cell.step(projected[t], state, task.weights, None if dt is None else dt[t])
            output = after[0]
            if task.lengths is not None:
                real = (t < task.lengths).unsqueeze(-1)
                output = torch.where(real, output, 0)
                after = tuple(torch.where(real, new, old) for new, old in zip(after, state, strict=True))
                if watch:
                    values = {name: torch.where(real, value, 0) for name, value in values.items()}
            state = after
            outputs.append(output.to(dtype))
            if watch:
                seen.append({"hidden": output, **values})

        if task.reverse:
            outputs.reverse()
            seen.reverse()
        result = EngineResult(torch.stack(outputs), (state[0].to(dtype), *state[1:]))
        recorded = {name: torch.stack([values[name] for values in seen]) for name in (seen[0] if watch else ())}
        return result, recorded


def no_autocast(device: str) -> AbstractContextManager[None]:
    """Disable autocast: dtypes are already chosen, and gates and state must not be cast down."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()
