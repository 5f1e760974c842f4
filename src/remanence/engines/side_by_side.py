"""Stacks tasks of the same kind into one, with their number N in front of every shape, and unstacks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from .base import EngineResult, EngineTask, Zeros


def stacked(tasks: Sequence[EngineTask]) -> EngineTask:
    """All tasks as one. If only some have a state, dt or lengths, the others get defaults: zeros, ones, T steps.

    Args:
        tasks: Tasks of the same kind and shape.
    """
    first = tasks[0]
    steps, batch, _ = first.inputs.shape
    state = first.state
    if not all(isinstance(task.state, Zeros) for task in tasks):
        state = tuple(map(torch.stack, zip(*(task.first_state for task in tasks), strict=True)))

    def joined(values: Sequence[Tensor | None], shape: tuple[int, ...], usual: float) -> Tensor | None:
        known = next((value for value in values if value is not None), None)
        if known is None:
            return None
        return torch.stack([known.new_full(shape, usual) if value is None else value for value in values])

    return replace(
        first,
        weights={name: torch.stack([task.weights[name] for task in tasks]) for name in first.weights},
        inputs=all_inputs([task.inputs for task in tasks]),
        state=state,
        dt=joined([task.dt for task in tasks], (steps, batch), 1),
        lengths=joined([task.lengths for task in tasks], (batch,), steps),
    )


def all_inputs(inputs: Sequence[Tensor]) -> Tensor:
    """The stacked inputs of all tasks: without a copy if they are views of one tensor and need no gradient."""
    if torch.compiler.is_compiling() or any(one.requires_grad for one in inputs):
        return torch.stack(list(inputs))
    return rejoined(inputs).detach()


def rejoined(parts: Sequence[Tensor]) -> Tensor:
    """Like `torch.stack`, but returns the original tensor if the parts come from its `unbind`: no copy of gigabytes."""
    whole = parts[0]._base
    if whole is None or whole.shape != (len(parts), *parts[0].shape):
        return torch.stack(list(parts))
    places = [(part._base is whole, part.data_ptr(), part.stride()) for part in parts]
    if places != [(True, part.data_ptr(), part.stride()) for part in whole.detach().unbind()]:
        return torch.stack(list(parts))
    return whole


def first(task: EngineTask) -> EngineTask:
    """The first of stacked tasks."""
    return _each(task, lambda value: value[:1].unbind())[0]


def each(task: EngineTask) -> list[EngineTask]:
    """All tasks of a stacked one."""
    return _each(task, Tensor.unbind)


def _each(task: EngineTask, apart: Callable[[Tensor], Sequence[Tensor]]) -> list[EngineTask]:
    inputs = apart(task.inputs)
    count = len(inputs)
    weights = {name: apart(weight) for name, weight in task.weights.items()}
    states = [task.state] * count if isinstance(task.state, Zeros) else list(zip(*map(apart, task.state), strict=True))
    dts, lengths = ([None] * count if value is None else apart(value) for value in (task.dt, task.lengths))
    return [
        replace(
            task,
            weights={name: parts[number] for name, parts in weights.items()},
            inputs=inputs[number],
            state=states[number],
            dt=dts[number],
            lengths=lengths[number],
        )
        for number in range(count)
    ]


def taken_apart(result: EngineResult) -> list[EngineResult]:
    """The results of all tasks of a stacked one."""
    each = zip(*(part.unbind() for part in (result.output, *result.state)), strict=True)
    return [EngineResult(output, tuple(state)) for output, *state in each]


def put_together(results: Sequence[EngineResult]) -> EngineResult:
    """The results of all tasks, stacked."""
    states = zip(*(result.state for result in results), strict=True)
    return EngineResult(torch.stack([result.output for result in results]), tuple(map(torch.stack, states)))
