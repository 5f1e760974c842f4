"""The engine as one operation of autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .backward import backward
from .forward import forward
from .history import Arguments, CellRun, History

FIELDS = ("inputs", "dt", "weight_ih", "weight_hh", "bias", "bias_hh")


class Recurrence(Function):
    """The hidden state after every step, `(T, B, H)`, and the state after the last one, `(B, H)` each."""

    @staticmethod
    def forward(ctx: Any, plan: CellRun, *tensors: Any) -> tuple[Tensor, ...]:
        given = unflatten(plan, tensors)
        history, state = forward(plan, given, keep=True)
        output = history.output(plan)
        ctx.plan = plan
        # The output is saved so that autograd notices if it is changed, although it has no memory of its own.
        ctx.save_for_backward(*tensors, output, history.hidden, history.pre, *history.state, *history.kept)
        return (output, *state)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: CellRun = ctx.plan
        names = (*FIELDS, *plan.units)
        wanted = {name for name, want in zip(names, ctx.needs_input_grad[1:], strict=False) if want}
        count = len(ctx.needs_input_grad) - 1
        saved = ctx.saved_tensors  # which torch.utils.checkpoint gives once
        given = unflatten(plan, saved[:count])
        _, hidden, pre, *rest = saved[count:]
        parts = len(plan.kernel.state)
        history = History(hidden, pre, tuple(rest[:parts]), tuple(rest[parts:]))
        with torch.no_grad():
            result = backward(plan, given, history, gradients[0], gradients[1:], wanted)
        found = (*result[:6], *result.units, *result.state)
        if torch.is_grad_enabled():
            found = Once.apply(torch.zeros((), requires_grad=True), *found)  # type: ignore[no-untyped-call]
        return (None, *found)


class Once(Function):
    """Passes first derivatives on and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(None if gradient is None else gradient.view_as(gradient) for gradient in gradients)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(
            'expected first derivatives only, got a second one, which engine="cpu" does not have: use engine="loop"'
        )


def flatten(given: Arguments) -> tuple[Tensor | None, ...]:
    """Tensors in the order autograd sees them."""
    return (*given[:6], *given.units, *given.state)


def unflatten(plan: CellRun, tensors: tuple[Any, ...]) -> Arguments:
    """The inverse of `flatten`."""
    inputs, dt, weight_ih, weight_hh, bias, bias_hh, *rest = tensors
    units, state = tuple(rest[: len(plan.units)]), tuple(rest[len(plan.units) :])
    return Arguments(inputs, dt, weight_ih, weight_hh, bias, bias_hh, units, state)
