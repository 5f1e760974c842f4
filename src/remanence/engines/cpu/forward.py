"""The forward pass over a whole sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from .buffers import Scratch, stretch_size, stretches
from .history import Arguments, CellRun, History


def forward(plan: CellRun, given: Arguments, keep: bool) -> tuple[History, tuple[Tensor, ...]]:
    """Run a kernel over a sequence.

    Args:
        keep: Whether to keep the history of all steps for a backward pass.

    Returns:
        The history, and the final state, `(B, H)` each, hidden first.
    """
    steps, batch = given.inputs.shape[:2]
    plane = batch * given.width
    history = History.empty(plan, given, steps if keep else stretch_size(steps, plane))
    weight_ih, weight_hh = given.weight_ih.t(), given.weight_hh.t().contiguous()  # twice as fast at small B
    scratch = Scratch((batch, given.width), given.inputs)

    hidden, *state = given.state
    history.hidden[steps if plan.reverse else 0].copy_(hidden)
    for stretch in stretches(steps, plane, plan.reverse):
        own = stretch if keep else stretch.local
        for slots, part in zip(history.state, state, strict=True):
            slots[own.first].copy_(part)
        track = history.track(plan, given, stretch, own)
        inputs = stretch.of(given.inputs).flatten(0, 1)
        torch.addmm(given.bias, inputs, weight_ih, out=track.pre.flatten(2).flatten(0, 1))
        plan.kernel.forward(track, weight_hh, given.bias_hh, scratch)
        state = [slots[own.last] for slots in history.state]
    last = history.hidden[0 if plan.reverse else steps]
    return history, tuple(part.clone() for part in (last, *state))
