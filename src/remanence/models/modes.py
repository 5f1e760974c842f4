"""Evaluation mode, and detached states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every submodule is back in its previous mode."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def detached(state: Any) -> Any:
    """A nested state with all tensors detached."""
    return state.detach() if isinstance(state, torch.Tensor) else tuple(detached(part) for part in state)
