"""A whole task as one custom torch operator, for graphs. The engine is chosen when and where the operator runs.

`torch.export` always uses this operator; `torch.compile` uses it if the engine has no operators of its own. Its
backward pass runs the forward pass again, because it saves nothing but its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..cells import wide
from ..cells.text import LOCAL, as_text, from_text
from .base import EngineResult, EngineTask, Zeros
from .choice import run
from .double_backward import Fields, by_the_loop, differentiable
from .kernels.operator import no_second_derivative
from .outline import Outline
from .transforms import is_traced

KIND = (
    "Tensor? lengths, str cell, str names, int[] widths, bool has_state, bool has_dt, bool reverse, str engine, "
    "int pieces"
)
PARTS = KIND.count(",") + 1
AUTOGRAD = ("AutogradOther", "AutogradCPU", "AutogradCUDA")


def as_operator(engine: str, task: EngineTask, pieces: int) -> EngineResult:
    """Run a task by the custom operator."""
    cell = as_text(task.cell)
    if cell.startswith(LOCAL) and not (torch.compiler.is_compiling() and not torch.compiler.is_exporting()):
        raise ValueError(
            f"expected settings of {type(task.cell).__name__} and its gate that are plain data (numbers, strings, "
            "None), so that another process can rebuild them, got other types"
        )
    widths = task.state.widths if isinstance(task.state, Zeros) else tuple(part.shape[-1] for part in task.state)
    output, *state = recurrence(
        list(task.tensors),
        task.lengths,
        cell,
        ",".join(task.weights),
        list(widths),
        not isinstance(task.state, Zeros),
        task.dt is not None,
        task.reverse,
        engine,
        pieces,
    )
    return EngineResult(output, tuple(state))


@torch.library.custom_op("remanence::recurrence", mutates_args=(), schema=f"(Tensor[] tensors, {KIND}) -> Tensor[]")
def recurrence(tensors: Sequence[Tensor], *kind: Any) -> list[Tensor]:
    """Output and state after the last step, see `EngineResult`.

    Args:
        tensors: Tensors of the task, see `EngineTask.tensors`.
        kind: The rest of the task, the name of an engine or "auto", and the number of chunks for checkpointing.
    """
    with torch.no_grad(), _unrecorded():
        (result,) = run(kind[-2], [_outline(kind).filled(tensors)])
    return _own((result.output, *result.state), tensors)


@torch.library.custom_op(
    "remanence::recurrence_backward",
    mutates_args=(),
    schema=f"(Tensor[] tensors, Tensor?[] gradients, bool[] needs, {KIND}) -> Tensor[]",
)
def recurrence_backward(
    tensors: Sequence[Tensor], gradients: Sequence[Tensor | None], needs: Sequence[bool], *kind: Any
) -> list[Tensor]:
    """Gradients with respect to those tensors that need one, in order.

    Args:
        tensors: As in `recurrence`.
        gradients: Gradients with respect to the results of `recurrence`.
        needs: Which tensors need a gradient.
        kind: As in `recurrence`.
    """
    with _recording():
        leaves = [tensor.detach().requires_grad_(need) for tensor, need in zip(tensors, needs, strict=True)]
        (result,) = run(kind[-2], [_outline(kind).filled(leaves)], kind[-1])
        known = [
            (value, gradient)
            for value, gradient in zip((result.output, *result.state), gradients, strict=True)
            if gradient is not None and value.requires_grad
        ]
        wanted = [leaf for leaf, need in zip(leaves, needs, strict=True) if need]
        slopes: Sequence[Tensor | None] = [None] * len(wanted)
        if known:
            outputs, upstream = zip(*known, strict=True)
            slopes = torch.autograd.grad(outputs, wanted, upstream, allow_unused=True)
    found = zip(wanted, slopes, strict=True)
    return _own([torch.zeros_like(leaf) if slope is None else slope for leaf, slope in found], tensors)


@contextmanager
def _unrecorded() -> Iterator[None]:
    """Hide operations from torch.jit.trace, which has already recorded the operator."""
    before = torch._C._get_tracing_state()
    if before is None:  # compiled graphs do not allow setting it
        yield
        return
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch._C._set_tracing_state(before)  # type: ignore[attr-defined]


@contextmanager
def _recording() -> Iterator[None]:
    """Enable autograd inside an operator, where torch disables it."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    for name in AUTOGRAD:
        keys = keys | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded - keys), torch.enable_grad():
        yield


def _own(values: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    """Contiguous results that share no memory with each other or with the inputs: operators must not alias."""
    taken = {tensor.untyped_storage().data_ptr() for tensor in given}
    found = []
    for value in values:
        place = value.untyped_storage().data_ptr()
        if place in taken or not value.is_contiguous():
            value = value.clone(memory_format=torch.contiguous_format)
            place = value.untyped_storage().data_ptr()
        taken.add(place)
        found.append(value.detach())
    return found


@recurrence.register_fake
def _(tensors: Sequence[Tensor], *kind: Any) -> list[Tensor]:
    inputs, (hidden, *others) = tensors[0], kind[3]
    steps, batch, _ = inputs.shape
    more = wide(inputs.dtype)
    last = [inputs.new_empty(batch, hidden), *(inputs.new_empty(batch, width, dtype=more) for width in others)]
    return [inputs.new_empty(steps, batch, hidden), *last]


@recurrence_backward.register_fake
def _(tensors: Sequence[Tensor], gradients: Fields, needs: Sequence[bool], *kind: Any) -> list[Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor, need in zip(tensors, needs, strict=True) if need]


def _outline(kind: Sequence[Any]) -> Outline:
    lengths, cell, names, widths, has_state, has_dt, reverse, *_ = kind
    state = len(widths) if has_state else Zeros(tuple(widths))
    return Outline(from_text(cell), tuple(names.split(",")), state, has_dt, lengths, reverse)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, lengths, *ctx.kind = inputs
    ctx.save_for_backward(*tensors, lengths)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, gradients: Sequence[Tensor | None]) -> Any:
    *tensors, lengths = ctx.saved_tensors
    needs, kind = ctx.needs_input_grad[0], (lengths, *ctx.kind)
    if torch.is_grad_enabled() and not is_traced(tensors):
        found: Fields = differentiable(partial(_by_the_loop, kind), tensors, needs, gradients)
    else:
        slopes = iter(recurrence_backward(tensors, list(gradients), list(needs), *kind))
        found = [next(slopes) if need else None for need in needs]
    return list(found), *(None,) * PARTS


def _by_the_loop(kind: Sequence[Any], tensors: Fields) -> tuple[Tensor, ...]:
    result = by_the_loop(_outline(kind).filled(tensors))
    return result.output, *result.state


recurrence.register_autograd(_differentiate, setup_context=_keep)
recurrence_backward.register_autograd(no_second_derivative)
