"""The fused engine as operators of torch: they differentiate, and `torch.compile` takes them as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import launch


def _kind(
    cell: str, gate: str, blocks: int, split: int, coupled: bool, beta: float, eps: float, reverse: bool, precision: str
) -> launch.Kind:
    return launch.Kind(cell, gate, blocks, split, coupled, beta, eps, gate == "power_law", reverse, precision)


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
    kind = _kind(cell_name, gate_name, blocks, split, coupled, beta, eps, reverse, precision)
    return launch.forward(
        kind, inputs, weight_ih, weight_hh, bias, candidate_bias, exponent, dt, lengths, hidden, cell, age, save
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
    kind = _kind(cell_name, gate_name, blocks, split, coupled, beta, eps, reverse, precision)
    return launch.backward(
        kind,
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
    tensors, settings = inputs[:11], inputs[11:]
    x, weight_ih, weight_hh, _, _, exponent, dt, lengths, hidden, cell, age = tensors
    outputs, _, _, _, pre, cells_kept, ages_kept, parts_kept = output
    ctx.settings = settings[1:]
    ctx.save_for_backward(
        x,
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
    )
    ctx.set_materialize_grads(True)


def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    d_outputs, d_hidden, d_cell, d_age = (grad.contiguous() for grad in grads[:4])
    needs_dt = bool(ctx.needs_input_grad[6])
    results = fused_backward(*saved, d_outputs, d_hidden, d_cell, d_age, needs_dt, *ctx.settings)
    d_inputs, d_ih, d_hh, d_bias, d_candidate, d_exponent, d_dt, d_first_hidden, d_first_cell, d_first_age = results
    hidden, age = saved[6], saved[8]
    given: tuple[Tensor | None, ...] = (
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
        d_first_age if age.numel() else torch.zeros_like(age),
    )
    return given + (None,) * 10


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError(
        'expected first derivatives only, got a second one: the fused engine has none, engine="loop" does'
    )


fused_forward.register_autograd(_differentiate, setup_context=_setup)
fused_backward.register_autograd(_no_second_derivative)
