"""The fused engine as operators of torch: they differentiate, and `torch.compile` takes them as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import launch

SETTINGS = 9
"""How many of the arguments, the last ones, say which kernel: they make a `launch.Kind`."""


def _kind(
    cell: str, gate: str, blocks: int, split: int, coupled: bool, beta: float, eps: float, reverse: bool, precision: str
) -> launch.Kind:
    return launch.Kind(cell, gate, blocks, split, coupled, beta, eps, gate == "power_law", reverse, precision)


def _launch_forward(*arguments: Any) -> launch.Forwards:
    return launch.forward(_kind(*arguments[-SETTINGS:]), *arguments[:-SETTINGS])


def _launch_backward(*arguments: Any) -> launch.Backwards:
    return launch.backward(_kind(*arguments[-SETTINGS:]), *arguments[:-SETTINGS])


@torch.library.custom_op("remanence::fused_forward", mutates_args=())
def fused_forward(
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    candidate_bias: Tensor,
    exponent: Tensor,
    dt: Tensor | None,
    lengths: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    age: Tensor,
    save: bool,
    cell_name: str,
    gate_name: str,
    blocks: int,
    split: int,
    coupled: bool,
    beta: float,
    eps: float,
    reverse: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See `launch.forward`."""
    return _launch_forward(
        inputs,
        weight_ih,
        weight_hh,
        bias,
        candidate_bias,
        exponent,
        dt,
        lengths,
        hidden,
        cell,
        age,
        save,
        cell_name,
        gate_name,
        blocks,
        split,
        coupled,
        beta,
        eps,
        reverse,
        precision,
    )


@fused_forward.register_fake
def _(
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    candidate_bias: Tensor,
    exponent: Tensor,
    dt: Tensor | None,
    lengths: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    age: Tensor,
    save: bool,
    cell_name: str,
    gate_name: str,
    blocks: int,
    split: int,
    coupled: bool,
    beta: float,
    eps: float,
    reverse: bool,
    precision: str,
) -> tuple[Tensor, ...]:
    replicas, steps, rows, _ = inputs.shape
    units = weight_hh.shape[2]

    def wide(*shape: int) -> Tensor:
        return inputs.new_empty(shape, dtype=torch.float32)

    state = (replicas, rows, units)
    kept = (replicas, steps, rows, units)
    has_age = gate_name == "power_law"
    return (
        inputs.new_empty(kept),
        wide(*state),
        wide(*state),
        wide(*state) if has_age else wide(0),
        wide(replicas, steps, rows, blocks * units) if save else wide(0),
        wide(*kept) if save else wide(0),
        wide(*kept) if save and has_age else wide(0),
        wide(*kept) if save and split >= 0 else wide(0),
    )


@torch.library.custom_op("remanence::fused_backward", mutates_args=())
def fused_backward(
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    exponent: Tensor,
    dt: Tensor | None,
    lengths: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    age: Tensor,
    outputs: Tensor,
    pre: Tensor,
    cells_kept: Tensor,
    ages_kept: Tensor,
    parts_kept: Tensor,
    d_outputs: Tensor,
    d_last_hidden: Tensor,
    d_last_cell: Tensor,
    d_last_age: Tensor,
    needs_dt: bool,
    cell_name: str,
    gate_name: str,
    blocks: int,
    split: int,
    coupled: bool,
    beta: float,
    eps: float,
    reverse: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See `launch.backward`."""
    return _launch_backward(
        inputs,
        weight_ih,
        weight_hh,
        exponent,
        dt,
        lengths,
        hidden,
        cell,
        age,
        outputs,
        pre,
        cells_kept,
        ages_kept,
        parts_kept,
        d_outputs,
        d_last_hidden,
        d_last_cell,
        d_last_age,
        needs_dt,
        cell_name,
        gate_name,
        blocks,
        split,
        coupled,
        beta,
        eps,
        reverse,
        precision,
    )


@fused_backward.register_fake
def _(
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    exponent: Tensor,
    dt: Tensor | None,
    lengths: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    age: Tensor,
    outputs: Tensor,
    pre: Tensor,
    cells_kept: Tensor,
    ages_kept: Tensor,
    parts_kept: Tensor,
    d_outputs: Tensor,
    d_last_hidden: Tensor,
    d_last_cell: Tensor,
    d_last_age: Tensor,
    needs_dt: bool,
    cell_name: str,
    gate_name: str,
    blocks: int,
    split: int,
    coupled: bool,
    beta: float,
    eps: float,
    reverse: bool,
    precision: str,
) -> tuple[Tensor, ...]:
    def like(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)

    def wide(tensor: Tensor) -> Tensor:
        return tensor.new_empty(tensor.shape, dtype=torch.float32)

    replicas, units = weight_hh.shape[0], weight_hh.shape[2]
    none = inputs.new_empty(0, dtype=torch.float32)
    return (
        like(inputs),
        like(weight_ih),
        like(weight_hh),
        inputs.new_empty(weight_hh.shape[:2], dtype=torch.float32),
        inputs.new_empty((replicas, units), dtype=torch.float32) if split >= 0 else none,
        like(exponent),
        wide(dt) if needs_dt and dt is not None else none,
        wide(hidden),
        wide(cell),
        wide(age),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight_ih, weight_hh, _, _, exponent, dt, lengths, hidden, cell, age, _, *settings = inputs
    outputs, _, _, _, pre, cells_kept, ages_kept, parts_kept = output
    ctx.settings = settings
    kept = (pre, cells_kept, ages_kept, parts_kept)
    ctx.save_for_backward(x, weight_ih, weight_hh, exponent, dt, lengths, hidden, cell, age, outputs, *kept)
    ctx.set_materialize_grads(False)  # what is kept for the backward pass has no gradient to be filled with zeros


def _differentiate(ctx: Any, *grads: Tensor | None, operator: Any = fused_backward) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    hidden, cell, age, outputs = saved[6:10]
    like = (outputs, cell, cell, age)
    given = [torch.zeros_like(t) if grad is None else grad.contiguous() for grad, t in zip(grads, like, strict=False)]
    needs_dt = bool(ctx.needs_input_grad[6])
    results = operator(*saved, *given, needs_dt, *ctx.settings)
    d_inputs, d_ih, d_hh, d_bias, d_candidate, d_exponent, d_dt, d_first_hidden, d_first_cell, d_first_age = results
    slopes: tuple[Tensor | None, ...] = (
        d_inputs,
        d_ih,
        d_hh,
        d_bias,
        d_candidate,
        d_exponent,
        d_dt if needs_dt else None,
        None,
        d_first_hidden.to(hidden.dtype),
        d_first_cell,
        d_first_age,
    )
    return slopes + (None,) * (1 + len(ctx.settings))


def _no_second_derivative(*_: Any) -> None:
    raise NotImplementedError(
        'expected first derivatives only, got a second one: the fused engine has none, engine="loop" does'
    )


fused_forward.register_autograd(_differentiate, setup_context=_setup)
fused_backward.register_autograd(_no_second_derivative)


class _Fused(torch.autograd.Function):
    """The same without a compiler. What a custom operator does on every call takes longer than a short sequence."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        results = _launch_forward(*arguments)
        _setup(ctx, arguments, results)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _differentiate(ctx, *grads, operator=_FusedBackward.apply)


class _FusedBackward(torch.autograd.Function):
    """The backward pass, which has no derivative of its own."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        return _launch_backward(*arguments)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _no_second_derivative()


def fused(*arguments: Any) -> tuple[Tensor, ...]:
    """All steps of a task, see `fused_forward` for the arguments."""
    if torch.compiler.is_compiling():
        compiled: tuple[Tensor, ...] = fused_forward(*arguments)
        return compiled
    results: tuple[Tensor, ...] = _Fused.apply(*arguments)  # type: ignore[no-untyped-call]
    return results
