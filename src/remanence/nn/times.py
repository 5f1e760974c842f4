"""Absolute times of steps: conversion to the time between steps, and a warning if they were passed as dt."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ..engines.transforms import transformed
from .sequence import Inputs, as_times, within

MANY = 10
"""Minimum number of steps for the warning that dt looks like absolute times."""


def between(times: Any, input: Inputs, batch_first: bool, lengths: Any = None) -> Tensor:
    """The time since the previous step, in the shape of `times`; 1 for the first step.

    Args:
        times: Absolute times of the steps, `(T, B)`, or `(B, T)` with batch_first, or `(T,)`; packed or padded if the
            input is packed.
        input: Input of the layer.
        batch_first: Whether the batch dimension is first.
        lengths: `(B,)` lengths of the sequences; times past the end are ignored.
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
    if _readable(found) and bool((found < 0).any()):
        step = int((found < 0).reshape(len(found), -1).any(1).nonzero()[0])
        raise ValueError(f"expected times that do not decrease, got a decrease at step {step}")
    return found.t() if turned else found


def warn_if_absolute(dt: Tensor) -> bool:
    """Warn if dt, `(T, B)`, increases at every step: it probably holds absolute times. False if that cannot be seen."""
    if len(dt) < MANY or not _readable(dt):
        return False
    if bool((dt[1:] > dt[:-1]).all()) and bool((dt[-1] >= len(dt) / 2).all()):
        warnings.warn(
            f"dt increases at every step, up to {float(dt.max()):g}, like absolute times: dt is the time since the "
            "previous step; pass absolute times as times=",
            stacklevel=2,
        )
    return True


def _readable(values: Tensor) -> bool:
    """Whether the values can be read without a GPU sync, and not while tracing."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling() and not transformed()
