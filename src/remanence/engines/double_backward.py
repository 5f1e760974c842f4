"""Second derivatives: when a backward pass must itself be differentiable, gradients are computed by the loop engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import loop, side_by_side
from .base import EngineResult, EngineTask

Fields = Sequence[Tensor | None]


def differentiable(
    compute: Callable[[Fields], Sequence[Tensor | None]], given: Fields, needs: Sequence[bool], gradients: Fields
) -> tuple[Tensor | None, ...]:
    """Gradients with respect to `given`, computed by differentiable operations. Memory use is that of the loop.

    A backward pass calls this when torch requests a graph of it (`create_graph=True`).

    Args:
        compute: The forward pass, by the loop engine.
        given: Inputs of the forward pass, as saved by autograd.
        needs: Which of them need a gradient.
        gradients: Gradients with respect to the results of `compute`, or None.
    """
    with torch.enable_grad():
        # Views, so that an input computed from another input does not also contribute to that one's gradient.
        own = [
            value.view_as(value) if need and value is not None else value
            for value, need in zip(given, needs, strict=True)
        ]
        pairs = [
            (value, gradient)
            for value, gradient in zip(compute(own), gradients, strict=True)
            if gradient is not None and value is not None and value.requires_grad
        ]
        wanted = [value for value, need in zip(own, needs, strict=True) if need and value is not None]
        if not pairs or not wanted:
            return (None,) * len(needs)
        outputs, upstream = zip(*pairs, strict=True)
        slopes = iter(torch.autograd.grad(outputs, wanted, upstream, create_graph=True, allow_unused=True))
    return tuple(next(slopes) if need and value is not None else None for value, need in zip(own, needs, strict=True))


def by_the_loop(task: EngineTask) -> EngineResult:
    """Run a task, or several stacked tasks, on the loop engine."""
    if task.inputs.dim() == 3:
        return loop.run(task)
    return side_by_side.put_together([loop.run(one) for one in side_by_side.each(task)])
