"""The kernels as a torch operator, with autograd and `torch.compile` support.

In eager mode everything is a single autograd node, from the unpadded tensors to their gradients: the host overhead of
separate tensor operations and custom operators would take longer than a short sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from functools import partial
from operator import is_
from typing import Any

import torch
from torch import Tensor

from ...cells import PointwiseCell
from ..base import EngineTask, Zeros
from ..double_backward import Fields, by_the_loop, differentiable
from . import launch
from .contract import (
    Final,
    Kept,
    Kind,
    Needs,
    OperandGradients,
    Operands,
    Terms,
    backend,
    derivation,
    for_every_unit,
    one_a_sequence,
    several,
)
from .launch import among
from .layout import padded, with_padding, without_padding

FIELDS = len(Operands._fields)
KEPT = len(Kept._fields)


def run_kernels(kind: Kind, cell: PointwiseCell, given: Operands, save: bool) -> tuple[Tensor, Final]:
    """Run all steps: outputs `(N, T, B, H)` and the final state, possibly padded; N only if there are several tasks.

    Args:
        kind: Kernel variant.
        cell: Cell that it computes.
        given: Unpadded operands.
        save: Whether there will be a backward pass.
    """
    if torch.compiler.is_compiling():
        given = with_padding(kind.blocks, given)
        outputs, hidden, last, carried, *_ = fused_forward(*given, save, *astuple(kind))
    elif save:
        if not given.inputs.is_contiguous():  # here, so that the copy is what autograd saves
            given = given._replace(inputs=given.inputs.contiguous())
        outputs, hidden, last, carried = _Fused.apply(kind, cell, *given)  # type: ignore[no-untyped-call]
    else:
        given, scale, terms = _ready(kind, given)
        kept, final = launch.forward(kind, given, scale, terms, save=False)
        return kept.outputs, _narrowed(final, kept.outputs)
    return outputs, Final(hidden, last, carried if kind.carried else None)


def _ready(kind: Kind, given: Operands) -> tuple[Operands, Tensor | None, Terms]:
    """Operands in the form the kernels expect, padded no more than needed."""
    terms = backend(kind.kernels).terms(kind, given)
    return *launch.prepared(kind, with_padding(kind.blocks, given, terms.alignment)), terms


def _narrowed(final: Final, outputs: Tensor) -> Final:
    """Convert the final hidden state to the dtype of the outputs."""
    assert final.hidden is not None
    same = final.hidden.dtype == outputs.dtype
    return final if same else final._replace(hidden=final.hidden.to(outputs.dtype))


def _needs(needs: Sequence[bool]) -> Needs:
    """Gradients that a backward pass has to compute, from `needs_input_grad` of all operands."""
    of = Operands(*needs)  # type: ignore[arg-type]
    return Needs(bool(of.inputs), bool(of.dt), bool(of.hidden or of.cell or of.carried))


class _Fused(torch.autograd.Function):
    """All steps as one autograd node."""

    @staticmethod
    def forward(ctx: Any, kind: Kind, cell: PointwiseCell, *fields: Tensor | None) -> Any:
        unpadded = Operands(*fields)  # type: ignore[arg-type]
        given, scale, terms = _ready(kind, unpadded)
        kept, final = launch.forward(kind, given, scale, terms, save=True)
        ctx.kind, ctx.cell, ctx.terms, ctx.units = kind, cell, terms, unpadded.weight_hh.shape[-1]
        ctx.overwritten = False
        # Each tensor once: to save one takes as long as to allocate one. Without padding both operands are the same.
        # weight_ih is saved unpadded: the backward pass does not need its padding.
        others = () if all(map(is_, given, fields)) else given._replace(weight_ih=unpadded.weight_ih)
        ctx.save_for_backward(*fields, *kept, scale, *others)
        ctx.set_materialize_grads(False)
        return kept.outputs, *_narrowed(final, kept.outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        saved = ctx.saved_tensors  # torch.utils.checkpoint allows a single access
        if not torch.is_grad_enabled():
            return _differentiate(ctx, saved, *grads)
        known = [None if grad is None else grad[..., : ctx.units] for grad in grads]
        compute = partial(_outputs_of_loop, ctx.kind, ctx.cell)
        return None, None, *differentiable(compute, saved[:FIELDS], ctx.needs_input_grad[2:], known)


def _differentiate(
    ctx: Any, saved: Sequence[Any], d_outputs: Tensor | None, *d_final: Tensor | None
) -> tuple[Tensor | None, ...]:
    kind: Kind = ctx.kind
    kept, scale = Kept(*saved[FIELDS : FIELDS + KEPT]), saved[FIELDS + KEPT]
    given = Operands(*(saved[FIELDS + KEPT + 1 :] or saved[:FIELDS]))
    if torch._C._is_any_autocast_enabled():  # saved tensors have the precision of the forward pass already
        device = given.inputs.device.type
        if torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return _differentiate(ctx, saved, d_outputs, *d_final)
    if ctx.overwritten:  # by an earlier backward pass (retain_graph): recompute, bit for bit the same
        more = given.weight_hh.shape[-1] - ctx.units
        again = given._replace(weight_ih=padded(given.weight_ih, (0, 0, 0, more), kind.blocks).contiguous())
        kept, _ = launch.forward(kind, again, scale, ctx.terms, save=True)
    ctx.overwritten = True
    needs = ctx.needs_input_grad[2:]
    slopes = launch.backward(
        kind,
        given,
        scale,
        kept,
        None if d_outputs is None else d_outputs.contiguous(),
        Final(*[None if grad is None else grad.contiguous() for grad in d_final]),
        _needs(needs),
        overwrite=True,
        real=ctx.units,
    )
    found = without_padding(kind, slopes, ctx.units)
    return None, None, *[slope if needed else None for slope, needed in zip(found, needs, strict=True)]


def _outputs_of_loop(kind: Kind, cell: PointwiseCell, given: Fields) -> tuple[Tensor | None, ...]:
    """Outputs and final state of the kernels recomputed by the loop, from unpadded operands, for double backward."""
    of, known = Operands(*given), derivation(cell)  # type: ignore[arg-type]
    units = of.weight_hh.shape[-1]
    weights = {"weight_ih": of.weight_ih, "weight_hh": of.weight_hh}
    weights |= {name: bias for name, bias in (("bias_ih", of.bias_ih), ("bias_hh", of.bias_hh)) if bias is not None}
    if of.own is not None:
        weights |= dict(zip(known.own, _apart(of.own, len(known.own), -2), strict=True))
    state: tuple[Tensor, ...] | Zeros = Zeros(tuple(cell.widths(units, units).values()))
    if of.hidden is not None:
        parts = (of.hidden, None if known.twice else of.cell, *_apart(of.carried, len(known.single), -3))
        state = one_a_sequence(known.single, tuple(part for part in parts if part is not None))
    result = by_the_loop(EngineTask(cell, weights, of.inputs, state, of.dt, of.lengths, kind.reverse))
    hidden, *others = for_every_unit(known.single, result.state)
    last = None if known.twice else others.pop(0)
    return result.output, hidden, last, several(tuple(others), -3)


def _apart(values: Tensor | None, count: int, dim: int) -> tuple[Tensor, ...]:
    """The inverse of `several`."""
    if values is None:
        return ()
    return values.unbind(dim) if count > 1 else (values,)


def no_second_derivative(*_: Any) -> None:
    """Raise: registered as the backward of a backward pass."""
    raise NotImplementedError(
        "expected first-order gradients only, got a double backward: torch.compile does not support it for this layer, "
        "call the layer without torch.compile"
    )


# For torch.compile: custom operators with a schema and fake kernels. Tensors that are None elsewhere are empty here.

KIND = (
    "str cell_name, str gate_name, int blocks, int split, bool coupled, float beta, int carried_values, "
    "int own_weights, bool reverse, str precision, str kernels"
)
PARTS = KIND.count(",") + 1
GIVEN = (
    "Tensor inputs, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? own, Tensor? dt, "
    "Tensor? lengths, Tensor? hidden, Tensor? cell, Tensor? carried"
)
KEPT_NAMES = tuple(f"kept_{name}" for name in Kept._fields)
FORWARD = f"({GIVEN}, bool save, {KIND}) -> ({', '.join(['Tensor'] * (3 + KEPT))})"
BACKWARD = (
    f"({GIVEN}, {', '.join(f'Tensor {name}' for name in KEPT_NAMES)}, Tensor? d_outputs, "
    f"Tensor? d_hidden, Tensor? d_cell, Tensor? d_carried, bool needs_inputs, bool needs_dt, bool needs_state, {KIND}) "
    f"-> ({', '.join(['Tensor'] * 10)})"
)


@torch.library.custom_op("remanence::fused_forward", mutates_args=(), schema=FORWARD)
def fused_forward(*arguments: Any) -> tuple[Tensor, ...]:
    """See `launch.forward`: outputs, last hidden, cell and carried values, and the rest of `Kept`."""
    kind, given, save = Kind(*arguments[-PARTS:]), Operands(*arguments[:FIELDS]), arguments[FIELDS]
    kept, final = launch.forward(kind, *launch.prepared(kind, given), backend(kind.kernels).terms(kind, given), save)
    return _filled(given, (kept.outputs, *_narrowed(final, kept.outputs), *kept[1:]))


@torch.library.custom_op("remanence::fused_backward", mutates_args=(), schema=BACKWARD)
def fused_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """See `launch.backward`."""
    kind, given = Kind(*arguments[-PARTS:]), Operands(*arguments[:FIELDS])
    kept = Kept(*(value if value.numel() else None for value in arguments[FIELDS : FIELDS + KEPT]))  # type: ignore[arg-type]
    d_outputs, *rest = arguments[FIELDS + KEPT : -PARTS]
    slopes = launch.backward(
        kind, *launch.prepared(kind, given), kept, d_outputs, Final(*rest[:3]), Needs(*rest[3:]), overwrite=False
    )
    # Outputs of an operator must not alias, and must match the fake kernel below.
    own = partial(torch.Tensor.to, dtype=torch.float32, copy=True)
    slopes = slopes._replace(
        inputs=None if slopes.inputs is None else slopes.inputs.contiguous(),
        weight_ih=slopes.weight_ih.clone(),
        bias_ih=own(slopes.bias_ih),
        bias_hh=own(slopes.bias_hh),
        own=None if slopes.own is None else own(slopes.own),
    )
    return _filled(given, slopes)


def _filled(given: Operands, values: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    return tuple(given.inputs.new_empty(0) if value is None else value for value in values)


@fused_forward.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    kind, given, save = Kind(*arguments[-PARTS:]), Operands(*arguments[:FIELDS]), arguments[FIELDS]
    *lead, steps, rows, _ = given.inputs.shape
    units = given.weight_hh.shape[-1]
    wide = given.inputs.new_empty(0, dtype=torch.float32).new_empty
    state, kept = (*lead, rows, units), (*lead, steps, rows, units)
    return _filled(
        given,
        (
            given.inputs.new_empty(kept),
            given.inputs.new_empty(state),
            wide(state),
            wide((*lead, *among(kind), rows, units)) if kind.carried else None,
            given.inputs.new_empty((*lead, steps * rows, kind.blocks * units)) if save else None,
            wide(kept) if save else None,
            wide((*lead, steps, *among(kind), rows, units)) if save and kind.carried else None,
            given.inputs.new_empty(kept) if save and kind.split >= 0 else None,
            given.inputs.new_empty(kept) if save and backend(kind.kernels).terms(kind, given).keeps_before else None,
        ),
    )


@fused_backward.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    kind, given = Kind(*arguments[-PARTS:]), Operands(*arguments[:FIELDS])
    needs = Needs(*arguments[-PARTS - 3 : -PARTS])
    *lead, _, rows, _ = given.inputs.shape
    units = given.weight_hh.shape[-1]
    new = given.inputs.new_empty
    wide = new(0, dtype=torch.float32).new_empty
    biases, state = (*lead, kind.blocks * units), (*lead, rows, units)
    return _filled(
        given,
        (
            new(given.inputs.shape) if needs.inputs else None,
            new(given.weight_ih.shape),
            new(given.weight_hh.shape),
            wide(biases),
            wide(biases),
            None if given.own is None else wide(given.own.shape),
            wide(given.dt.shape) if needs.dt and given.dt is not None else None,
            wide(state) if needs.state else None,
            wide(state) if needs.state else None,
            wide((*lead, *among(kind), rows, units)) if needs.state and kind.carried else None,
        ),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.parts = inputs[-PARTS:]
    outputs, _, _, _, *kept = output
    ctx.save_for_backward(*inputs[:FIELDS], outputs, *kept)
    ctx.set_materialize_grads(False)


def _differentiate_compiled(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    given = Operands(*saved[:FIELDS])
    needs = _needs(ctx.needs_input_grad[:FIELDS])
    kind = Kind(*ctx.parts)
    known = [None if grad is None else grad.contiguous() for grad in grads[: 3 + bool(kind.carried)]]
    known += [None] * (4 - len(known))
    slopes = OperandGradients(*fused_backward(*saved, *known, *needs, *ctx.parts))
    # The GRU's cell operand is its hidden state again: the caller passed it twice, and autograd adds both gradients.
    found = [slopes.inputs if needs.inputs else None, slopes.weight_ih, slopes.weight_hh]
    found += [None if b is None else s for b, s in ((given.bias_ih, slopes.bias_ih), (given.bias_hh, slopes.bias_hh))]
    found += [None if given.own is None else slopes.own, slopes.dt if needs.dt else None, None]
    found += [
        slope if needs.state and value is not None else None for value, slope in zip(given[8:], slopes[7:], strict=True)
    ]
    return *found, *(None,) * (1 + PARTS)


fused_forward.register_autograd(_differentiate_compiled, setup_context=_keep)
fused_backward.register_autograd(no_second_derivative)
