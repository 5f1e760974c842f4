"""Launching kernels: buffers, and the matmuls before and after the recurrence.

All of this runs on every call, and for short sequences the host's launch overhead dominates: avoid every tensor
operation that is not needed. Shapes are those of `contract`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ..machine import lacking, matrix_products
from . import products
from .contract import (
    Final,
    Kept,
    Kind,
    Needs,
    OperandGradients,
    Operands,
    RecurrenceGradients,
    Terms,
    Upstream,
    backend,
)
from .layout import Blocks, padded
from .pool import pooled


def prepared(kind: Kind, operands: Operands) -> tuple[Operands, Tensor | None]:
    """Operands with the recurrent matrix in the form the kernels expect, and the scale of its products."""
    matrix, scale = backend(kind.kernels).split(kind, operands.weight_hh)
    return operands if matrix is operands.weight_hh else operands._replace(weight_hh=matrix), scale


def forward(kind: Kind, operands: Operands, scale: Tensor | None, terms: Terms, save: bool) -> tuple[Kept, Final]:
    """All h_t with, if `save`, the tensors that the backward pass needs; and the final state.

    Args:
        kind: Kernel variant.
        operands: Operands of the pass.
        scale: Scale of the recurrent matrix, see `prepared`.
        terms: Requirements of the backend.
        save: Whether there will be a backward pass.
    """
    inputs = operands.inputs
    *lead, steps, rows, _ = inputs.shape
    units = operands.weight_hh.shape[-1]
    new = partial(torch.empty, dtype=torch.float32, device=inputs.device)
    keep = partial(pooled if inputs.is_cpu else torch.empty, dtype=torch.float32, device=inputs.device)
    pre = _projected(kind, operands, terms, save)
    shape, state = (*lead, steps, rows, units), (*lead, rows, units)
    outputs = torch.empty(*shape, dtype=inputs.dtype, device=inputs.device)
    kept = Kept(
        outputs,
        pre if save else None,
        keep(*shape) if save else None,
        keep(*lead, steps, *among(kind), rows, units) if save and kind.carried else None,
        torch.empty_like(outputs) if save and kind.split >= 0 else None,
        torch.empty_like(outputs) if save and rows and terms.keeps_before else None,
    )
    final = Final(new(*state), new(*state), new(*lead, *among(kind), rows, units) if kind.carried else None)
    if not rows:
        return kept, final
    backend(kind.kernels).forward(kind, operands, scale, pre, kept, final)
    return kept, final


def among(kind: Kind) -> tuple[int, ...]:
    """The extra dimension of carried values, if there are several."""
    return (kind.carried,) if kind.carried > 1 else ()


def _projected(kind: Kind, operands: Operands, terms: Terms, save: bool) -> Tensor | None:
    """Contribution of the inputs to the pre-activations, `(N, T B, G H)`; an empty buffer if the kernel computes it.

    Rows are padded to whole vectors if G H elements do not fill them.
    """
    inputs, weight = operands.inputs, operands.weight_ih
    if not terms.multiplies_inputs:
        with matrix_products(kind.precision == "tf32"):
            return products.by_weight(inputs.flatten(-3, -2), weight)
    if not save:
        return None
    *lead, steps, rows, _ = inputs.shape
    keep = pooled if inputs.is_cpu else torch.empty
    return keep(*lead, steps * rows, weight.shape[-2], dtype=inputs.dtype, device=inputs.device)


def backward(
    kind: Kind,
    operands: Operands,
    scale: Tensor | None,
    kept: Kept,
    d_outputs: Tensor | None,
    d_final: Final,
    needs: Needs,
    overwrite: bool,
    real: int | None = None,
) -> OperandGradients:
    """Gradients of all operands.

    Args:
        kind: Kernel variant.
        operands: Operands of the forward pass.
        scale: Scale of the recurrent matrix, see `prepared`.
        kept: Tensors saved by the forward pass.
        d_outputs: Gradient of all h_t, `(N, T, B, H)`; None for zero.
        d_final: Gradients of the final state; None for zero.
        needs: Which gradients to compute.
        overwrite: Whether the saved tensors may be overwritten, which saves most of the memory of this pass.
        real: Number of units without padding; gradients of the matrices are returned without padding.
    """
    inputs = operands.inputs
    units = operands.weight_hh.shape[-1]
    d_pre, d_parts, found, d_state = _through_time(kind, operands, scale, kept, d_outputs, d_final, needs, overwrite)
    with matrix_products(kind.precision == "tf32"):
        d_inputs = found.inputs
        real = units if real is None else real
        blocks = Blocks(kind.blocks, units, real)
        if needs.inputs and d_inputs is None:
            d_inputs = products.derivatives_by_inputs(d_pre, operands.weight_ih, blocks).view(inputs.shape)
        if found.weight_ih is None:
            d_weight_ih = products.derivatives_by_weight(d_pre, inputs.flatten(-3, -2), blocks)
        else:
            d_weight_ih = blocks.cut(found.weight_ih, inputs.shape[-1])
        d_weight_hh = found.weight_hh
        if d_weight_hh is None:
            d_weight_hh = _by_recurrent_weight(kind, operands, kept, d_pre, blocks)
        d_bias_ih = products.sum_over_rows(d_pre) if found.bias is None else found.bias
        d_bias_hh = d_bias_ih if found.bias_hh is None else found.bias_hh
        if d_parts is not None:
            flat = d_parts.flatten(-3, -2)
            own = slice(kind.split * real, (kind.split + 1) * real)
            whole = padded(flat, (0, lacking(units, flat.itemsize)))
            d_weight_hh[..., own, :] = _by_recurrent_weight(kind, operands, kept, whole, Blocks(1, units, real))
            block = slice(kind.split * units, (kind.split + 1) * units)
            if d_bias_hh is d_bias_ih:
                d_bias_hh = d_bias_ih.clone()
            d_bias_hh[..., block] = products.sum_over_rows(flat) if found.bias_hn is None else found.bias_hn
    return OperandGradients(d_inputs, d_weight_ih, d_weight_hh, d_bias_ih, d_bias_hh, found.own, found.dt, *d_state)


def _by_recurrent_weight(kind: Kind, operands: Operands, kept: Kept, d_pre: Tensor, blocks: Blocks) -> Tensor:
    if kept.before is not None:
        return products.derivatives_of_replicas(d_pre, kept.before.flatten(-3, -2), blocks)
    return products.derivatives_by_recurrent_weight(d_pre, kept.outputs, operands.hidden, blocks, kind.reverse)


def _through_time(
    kind: Kind,
    operands: Operands,
    scale: Tensor | None,
    kept: Kept,
    d_outputs: Tensor | None,
    d_final: Final,
    needs: Needs,
    overwrite: bool,
) -> tuple[Tensor, Tensor | None, RecurrenceGradients, Final]:
    """The sequential part of the backward pass; arguments as in `backward`.

    A separate function, so that its temporaries are freed before the matmuls that follow: these need as much memory
    again.

    Returns:
        Gradients of the pre-activations, of the recurrent part of the GRU's candidate, those that the kernel returns,
        and those of the initial state.
    """
    inputs, dt = operands.inputs, operands.dt
    *lead, _, rows, _ = inputs.shape
    units = operands.weight_hh.shape[-1]
    pre, parts = kept.pre, kept.parts
    assert pre is not None
    new = partial(torch.empty, dtype=torch.float32, device=inputs.device)
    d_pre = pre if overwrite else torch.empty_like(pre)
    d_parts = parts if overwrite or parts is None else torch.empty_like(parts)
    state = (*lead, rows, units)
    d_hidden, d_cell = (new(*state), new(*state)) if needs.state else (None, None)
    d_carried = new(*lead, *among(kind), rows, units) if needs.state and kind.carried else None
    d_state = Final(d_hidden, d_cell, d_carried)
    if not rows:
        d_own = None if operands.own is None else torch.zeros_like(operands.own)
        d_dt = torch.zeros_like(dt) if needs.dt and dt is not None else None
        d_bias = new(*lead, kind.blocks * units).zero_()
        return d_pre, d_parts, RecurrenceGradients(d_own, d_dt, bias=d_bias), d_state
    by = Upstream(d_outputs, d_final, d_pre, d_parts, d_state, needs.dt, needs.inputs)
    found = backend(kind.kernels).backward(kind, operands, scale, kept, by)
    return d_pre, d_parts, found, d_state
