"""Transformations of torch's, for which derivatives written by hand have no rules."""

from __future__ import annotations

import torch
from torch._C import _functorch as functorch
from torch.autograd import forward_ad

ADVICE = 'engine="loop" takes part in it'


def transformed() -> bool:
    """Whether torch.func transforms what is running: tensors may stand for others, whose numbers are not known."""
    return torch._C._are_functorch_transforms_active()


def hinders() -> str | None:
    """Why an engine that has a backward pass of its own cannot run now."""
    return f"torch.func transforms what calls it; {ADVICE}" if transformed() else _without_forward_mode()


def hinders_torch() -> str | None:
    """Why torch's recurrent layers cannot."""
    levels = functorch.get_interpreter_stack() if transformed() else None
    if any(level.key() == functorch.TransformType.Vmap for level in levels or ()):
        return f"torch has no rules for it in torch.func.vmap; {ADVICE}"
    return _without_forward_mode()


def _without_forward_mode() -> str | None:
    return None if forward_ad._current_level < 0 else f"it has no derivatives in forward mode; {ADVICE}"
