"""Transformations of torch's, for which derivatives written by hand have no rules."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

ADVICE = 'engine="loop" takes part in it'


def transformed() -> bool:
    """Whether torch.func transforms what is running: tensors may stand for others, whose numbers are not known."""
    return torch._C._are_functorch_transforms_active()


def hinders() -> str | None:
    """Why an engine that has a backward pass of its own cannot run now."""
    if torch.compiler.is_compiling():
        return None
    return f"torch.func transforms what calls it; {ADVICE}" if transformed() else hinders_torch()


def hinders_torch() -> str | None:
    """Why torch's recurrent layers cannot."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return None
    return f"it has no derivatives in forward mode; {ADVICE}"
