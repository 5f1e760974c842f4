"""Gradients that can be differentiated again: those of the loop, where a backward pass of its own has none."""

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
    """Gradients by what is given, made by operations that autograd knows: it keeps all that a loop over time keeps.

    A backward pass calls this where torch asks it for a graph (`create_graph=True`).

    Args:
        compute: the same as the forward pass, by the loop.
        given: what was given to the forward pass, as autograd saved it.
        needs: whose gradients are wanted.
        gradients: by what `compute` returns, None where there is none.
    """
    with torch.enable_grad():
        # Views: what was computed from something else that is given must not count for that as well.
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
    """Run a task, or several side by side, on the loop."""
    if task.inputs.dim() == 3:
        return loop.run(task)
    return side_by_side.put_together([loop.run(one) for one in side_by_side.each(task)])
