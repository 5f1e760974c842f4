"""The engine as one autograd function."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..double_backward import Fields, by_the_loop, differentiable
from ..kernels.contract import derivation, for_every_unit
from ..outline import Outline
from .backward import backward
from .forward import forward
from .history import Arguments, CellRun, History

FIELDS = ("inputs", "dt", "weight_ih", "weight_hh", "bias", "bias_hh")


class Recurrence(Function):
    """The hidden state after every step, `(T, B, H)`, and the final state, `(B, H)` each.

    It receives the tensors of the task twice: rearranged, for its own backward pass, and unchanged, for the loop
    engine, which computes gradients that support double backward.
    """

    @staticmethod
    def forward(ctx: Any, plan: CellRun, outline: Outline, count: int, *tensors: Any) -> tuple[Tensor, ...]:
        given = unflatten(plan, tensors[:count])
        history, state = forward(plan, given, keep=True)
        output = history.output(plan)
        ctx.plan, ctx.outline, ctx.count = plan, outline, count
        # The output shares its memory with `hidden`. It is saved so that autograd detects changes in place.
        ctx.save_for_backward(*tensors, output, history.hidden, history.pre, *history.state, *history.kept)
        return (output, *state)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: CellRun = ctx.plan
        names = (*FIELDS, *plan.per_unit)
        needs, count = ctx.needs_input_grad[3:], ctx.count
        saved = ctx.saved_tensors  # torch.utils.checkpoint allows a single access
        if torch.is_grad_enabled():
            own = slice(count, len(needs))
            compute = partial(_by_the_loop, ctx.outline)
            return None, None, None, *(None,) * count, *differentiable(compute, saved[own], needs[own], gradients)
        wanted = {name for name, want in zip(names, needs, strict=False) if want}
        given = unflatten(plan, saved[:count])
        _, hidden, pre, *rest = saved[len(needs) :]
        parts = len(plan.kernel.state)
        history = History(hidden, pre, tuple(rest[:parts]), tuple(rest[parts:]))
        result = backward(plan, given, history, gradients[0], gradients[1:], wanted)
        return None, None, None, *result[:6], *result.per_unit, *result.state, *(None,) * (len(needs) - count)


def _by_the_loop(outline: Outline, tensors: Fields) -> tuple[Tensor, ...]:
    task = outline.filled(tensors)
    result = by_the_loop(task)
    return result.output, *for_every_unit(derivation(task.cell).single, result.state)  # type: ignore[arg-type]


def flatten(given: Arguments) -> tuple[Tensor | None, ...]:
    """The tensors in the order in which autograd sees them."""
    return (*given[:6], *given.per_unit, *given.state)


def unflatten(plan: CellRun, tensors: tuple[Any, ...]) -> Arguments:
    """The inverse of `flatten`."""
    inputs, dt, weight_ih, weight_hh, bias, bias_hh, *rest = tensors
    per_unit, state = tuple(rest[: len(plan.per_unit)]), tuple(rest[len(plan.per_unit) :])
    return Arguments(inputs, dt, weight_ih, weight_hh, bias, bias_hh, per_unit, state)
