"""The backward pass over a whole sequence."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import torch
from torch import Tensor

from .buffers import Scratch, Stretch, stretch_size, stretches
from .cells import Gradients
from .history import Arguments, CellRun, History


class ArgumentGradients(NamedTuple):
    """Gradients of a run, in the order of `Arguments`; None for those that are not requested."""

    inputs: Tensor | None
    dt: Tensor | None
    weight_ih: Tensor | None
    weight_hh: Tensor | None
    bias: Tensor | None
    bias_hh: Tensor | None
    per_unit: tuple[Tensor | None, ...]
    state: tuple[Tensor, ...]


def backward(
    plan: CellRun, given: Arguments, history: History, by_output: Tensor, by_state: tuple[Tensor, ...], names: Set[str]
) -> ArgumentGradients:
    """Gradients of a run.

    Args:
        by_output: Gradients of the output, `(T, B, H)`.
        by_state: Gradients of the final state, `(B, H)` each, hidden first.
        names: Fields of `Arguments` and per-unit weights whose gradients are requested.
    """
    kernel = plan.kernel
    steps, batch = given.inputs.shape[:2]
    plane = batch * given.width
    size = stretch_size(steps, plane)
    extra = tuple(name for name in (*plan.per_unit, "dt") if name in names)
    order = kernel.planes(extra)
    new = given.inputs.new_empty
    planes, hidden = new(size, batch, len(order), given.width), new(size + 1, batch, 1, given.width)
    scratch = Scratch((size, batch, given.width), given.inputs)

    by_last, *by_others = (part.clone().unsqueeze(1) for part in by_state)
    state = dict(zip(kernel.state, by_others, strict=True))
    total = _start(plan, given, names)
    for stretch in reversed(list(stretches(steps, plane, plan.reverse))):
        # Slots of the hidden state: the one after the last step holds the gradient from later stretches.
        slots, local = hidden[: len(stretch) + 1], stretch.local
        local.after(slots).copy_(stretch.of(by_output).unsqueeze(2))
        slots[local.last].add_(by_last)
        slots[local.first].zero_()
        gradients = Gradients(order, extra, planes[: len(stretch)], slots, dict(state))
        kernel.backward(history.track(plan, given, stretch, stretch), gradients, given.weight_hh, scratch)
        _add(total, plan, given, history, stretch, gradients)
        # Copies for the next stretch, because it reuses the buffers.
        by_last.copy_(slots[local.first])
        for name, part in gradients.state.items():
            state[name].copy_(part)
    return total._replace(state=tuple(part.squeeze(1) for part in (by_last, *state.values())))


def _start(plan: CellRun, given: Arguments, names: Set[str]) -> ArgumentGradients:
    """Gradients initialised to zero, or uninitialised if they are not sums over time."""
    return ArgumentGradients(
        torch.empty_like(given.inputs, memory_format=torch.contiguous_format) if "inputs" in names else None,
        torch.empty_like(given.dt) if given.dt is not None and "dt" in names else None,
        torch.zeros_like(given.weight_ih) if "weight_ih" in names else None,
        torch.zeros_like(given.weight_hh) if "weight_hh" in names else None,
        torch.zeros_like(given.bias) if "bias" in names else None,
        torch.zeros_like(given.bias_hh) if "bias_hh" in names else None,
        tuple(
            torch.zeros_like(value) if name in names else None
            for name, value in zip(plan.per_unit, given.per_unit, strict=True)
        ),
        (),
    )


def _add(
    total: ArgumentGradients, plan: CellRun, given: Arguments, history: History, stretch: Stretch, gradients: Gradients
) -> None:
    """Add the contribution of a stretch: one matmul for each weight."""
    by_inputs = gradients.rows(plan.kernel.input_blocks).flatten(0, 1)
    by_recurrent = gradients.rows(plan.kernel.recurrent_planes).flatten(0, 1)
    ones = by_inputs.new_ones(len(by_inputs))  # reductions as matmuls with ones: several times faster than `sum`
    if total.inputs is not None:
        torch.mm(by_inputs, given.weight_ih, out=stretch.of(total.inputs).flatten(0, 1))
    if total.weight_ih is not None:
        total.weight_ih.addmm_(by_inputs.t(), stretch.of(given.inputs).flatten(0, 1))
    if total.weight_hh is not None:
        total.weight_hh.addmm_(by_recurrent.t(), stretch.before(history.hidden).flatten(0, 1))
    if total.bias is not None:
        total.bias.addmv_(by_inputs.t(), ones)
    if total.bias_hh is not None:
        total.bias_hh.addmv_(by_recurrent[:, by_recurrent.shape[1] - len(total.bias_hh) :].t(), ones)
    if total.dt is not None:
        torch.sum(gradients.plane("dt"), -1, keepdim=True, out=stretch.of(total.dt))
    for name, sums in zip(plan.per_unit, total.per_unit, strict=True):
        if sums is not None:
            sums.addmv_(gradients.rows((name,)).flatten(0, 1).t(), ones)
