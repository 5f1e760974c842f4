"""The fused engine as an operation of torch: it differentiates, and `torch.compile` takes it as it is.

The arguments are those of `launch.forward` and `launch.backward` without the kind of kernel, whose parts come last.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import launch

KIND = (
    "str cell_name, str gate_name, int blocks, int split, bool coupled, float beta, float eps, bool reverse, "
    "str precision"
)
"""What makes a `launch.Kind`."""
PARTS = KIND.count(",") + 1

FORWARD = (
    "(Tensor inputs, Tensor weight_ih, Tensor weight_hh, Tensor bias, Tensor candidate_bias, Tensor exponent, "
    f"Tensor? dt, Tensor? lengths, Tensor hidden, Tensor cell, Tensor age, bool save, {KIND}) "
    f"-> ({', '.join(['Tensor'] * 8)})"
)
BACKWARD = (
    "(Tensor inputs, Tensor weight_ih, Tensor weight_hh, Tensor exponent, Tensor? dt, Tensor? lengths, Tensor hidden, "
    "Tensor cell, Tensor age, Tensor outputs, Tensor pre, Tensor cells_kept, Tensor ages_kept, Tensor parts_kept, "
    "Tensor d_outputs, Tensor d_last_hidden, Tensor d_last_cell, Tensor d_last_age, bool needs_dt, "
    f"{KIND}) -> ({', '.join(['Tensor'] * 10)})"
)


def fused(*arguments: Any) -> tuple[Tensor, ...]:
    """All steps of a task: outputs, last hidden, cell and age, and what the backward pass needs."""
    if torch.compiler.is_compiling():
        compiled: tuple[Tensor, ...] = fused_forward(*arguments)
        return compiled
    results: tuple[Tensor, ...] = _Fused.apply(*arguments)  # type: ignore[no-untyped-call]
    return results


# For the compiler: operators with a schema, and what their results look like.


def _kind(
    cell: str, gate: str, blocks: int, split: int, coupled: bool, beta: float, eps: float, reverse: bool, precision: str
) -> launch.Kind:
    return launch.Kind(cell, gate, blocks, split, coupled, beta, eps, gate == "power_law", reverse, precision)


@torch.library.custom_op("remanence::fused_forward", mutates_args=(), schema=FORWARD)
def fused_forward(*arguments: Any) -> launch.Forwards:
    """See `launch.forward`."""
    return launch.forward(_kind(*arguments[-PARTS:]), *arguments[:-PARTS])


@torch.library.custom_op("remanence::fused_backward", mutates_args=(), schema=BACKWARD)
def fused_backward(*arguments: Any) -> launch.Backwards:
    """See `launch.backward`."""
    return launch.backward(_kind(*arguments[-PARTS:]), *arguments[:-PARTS])


@fused_forward.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    kind = _kind(*arguments[-PARTS:])
    inputs, save = arguments[0], arguments[11]
    replicas, steps, rows, _ = inputs.shape
    units = arguments[2].shape[2]

    def wide(wanted: bool, *shape: int) -> Tensor:
        empty: Tensor = inputs.new_empty(shape if wanted else 0, dtype=torch.float32)
        return empty

    state, kept = (replicas, rows, units), (replicas, steps, rows, units)
    return (
        inputs.new_empty(kept),
        wide(True, *state),
        wide(True, *state),
        wide(kind.has_age, *state),
        wide(save, replicas, steps, rows, kind.blocks * units),
        wide(save, *kept),
        wide(save and kind.has_age, *kept),
        wide(save and kind.split >= 0, *kept),
    )


@fused_backward.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    kind = _kind(*arguments[-PARTS:])
    inputs, weight_ih, weight_hh, exponent, dt, _, hidden, cell, age = arguments[:9]
    needs_dt = arguments[18]
    replicas, rows, units = weight_hh.shape

    def wide(shape: Any) -> Tensor:
        empty: Tensor = inputs.new_empty(shape, dtype=torch.float32)
        return empty

    return (
        inputs.new_empty(inputs.shape),
        inputs.new_empty(weight_ih.shape),
        inputs.new_empty(weight_hh.shape),
        wide((replicas, rows)),
        wide((replicas, units) if kind.split >= 0 else 0),
        wide(exponent.shape),
        wide(dt.shape if needs_dt else 0),
        wide(hidden.shape),
        wide(cell.shape),
        wide(age.shape),
    )


# Differentiation, with a compiler and without.


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight_ih, weight_hh, _, _, exponent, dt, lengths, hidden, cell, age, _, *parts = inputs
    outputs, _, _, _, *kept = output
    ctx.parts = parts
    ctx.save_for_backward(x, weight_ih, weight_hh, exponent, dt, lengths, hidden, cell, age, outputs, *kept)
    ctx.set_materialize_grads(False)  # what is kept for the backward pass has no gradient to be filled with zeros


def _differentiate(ctx: Any, *grads: Tensor | None, operator: Any = fused_backward) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    hidden, cell, age, outputs = saved[6:10]
    like = (outputs, cell, cell, age)
    given = [torch.zeros_like(t) if grad is None else grad.contiguous() for grad, t in zip(grads, like, strict=False)]
    needs_dt = bool(ctx.needs_input_grad[6])
    *slopes, d_dt, d_hidden, d_cell, d_age = operator(*saved, *given, needs_dt, *ctx.parts)
    no_slope = (None,) * (1 + PARTS)  # save, and the kind
    return (*slopes, d_dt if needs_dt else None, None, d_hidden.to(hidden.dtype), d_cell, d_age, *no_slope)


def _no_second_derivative(*_: Any) -> None:
    raise NotImplementedError(
        'expected first derivatives only, got a second one: the fused engine has none, engine="loop" does'
    )


fused_forward.register_autograd(_differentiate, setup_context=_keep)
fused_backward.register_autograd(_no_second_derivative)


class _Fused(torch.autograd.Function):
    """The same without a compiler. What a custom operator does on every call takes longer than a short sequence."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        results = launch.forward(_kind(*arguments[-PARTS:]), *arguments[:-PARTS])
        _keep(ctx, arguments, results)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _differentiate(ctx, *grads, operator=_FusedBackward.apply)


class _FusedBackward(torch.autograd.Function):
    """The backward pass, which has no derivative of its own."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        return launch.backward(_kind(*arguments[-PARTS:]), *arguments[:-PARTS])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _no_second_derivative()
