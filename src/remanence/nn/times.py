"""Times of steps, from which the time between them follows, and a look at times that were taken for it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ..engines.transforms import transformed
from .sequence import Inputs, as_times, within

MANY = 10
"""Steps from which on times that only grow are no coincidence."""


def between(times: Any, input: Inputs, batch_first: bool, lengths: Any = None) -> Tensor:
    """The time since the previous step, which of the first step is one, shaped like times.

    Args:
        times: when steps are, `(T, B)`, or `(B, T)` with batch_first, or `(T,)`; packed or padded if the input is
            packed.
        input: what goes into a layer.
        batch_first: whether batches come first.
        lengths: `(B,)` steps of every sequence; what stands in times beyond them does not matter.
    """
    if isinstance(times, PackedSequence):
        times, lengths = pad_packed_sequence(times, batch_first=batch_first)
    elif isinstance(input, PackedSequence):
        _, lengths = pad_packed_sequence(input)
    known = as_times(times, "times")
    if known.dim() not in (1, 2) or not known.numel():
        raise ValueError(f"expected times of shape (T, B) or (T,), got {tuple(known.shape)}")
    turned = known.dim() == 2 and batch_first
    by_step = known.t() if turned else known
    found = torch.cat((torch.ones_like(by_step[:1]), by_step[1:] - by_step[:-1]))
    if lengths is not None and found.dim() == 2:
        found = torch.where(within(torch.as_tensor(lengths, device=found.device), len(found)), found, 1)
    if _can_look(found) and bool((found < 0).any()):
        step = int((found < 0).reshape(len(found), -1).any(1).nonzero()[0])
        raise ValueError(f"expected times that do not decrease, got an earlier one at step {step} than before it")
    return found.t() if turned else found


def look_at(dt: Tensor) -> None:
    """Warn where what is given as the time between steps, `(T, B)`, grows with every step: those may be times."""
    if len(dt) < MANY or not _can_look(dt):
        return
    if bool((dt[1:] > dt[:-1]).all()) and bool((dt[-1] >= len(dt) / 2).all()):
        warnings.warn(
            f"dt grows with every step, up to {float(dt.max()):g}, as times do: dt is the time since the step before; "
            "give times as times=",
            stacklevel=2,
        )


def _can_look(values: Tensor) -> bool:
    """Whether numbers are known, and no host would wait for them."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling() and not transformed()
