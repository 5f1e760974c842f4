"""Small things around a model: its mode, and the states of its layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradients; afterwards every part is in the mode it was in."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def detached(state: Any) -> Any:
    """A state, however nested, that gradients do not flow through."""
    return state.detach() if isinstance(state, torch.Tensor) else tuple(detached(part) for part in state)
