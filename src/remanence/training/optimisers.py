"""Torch's optimisers from a configuration.

All replicas' parameters are one tensor `(R, P)` (see `population`), so an optimiser has one parameter, its state has a
row for every replica, and rows can be taken out and put back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .config import Optimiser


def make(config: Optimiser, parameter: nn.Parameter) -> torch.optim.Optimizer:
    """The optimiser of a configuration, in the form that needs the fewest operations on this device."""
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    capturable = parameter.device.type == "cuda"  # counts its steps on the device, as a CUDA graph needs
    if config.name == "adam":
        return torch.optim.Adam(
            [parameter], betas=config.betas, eps=config.eps, fused=True, capturable=capturable, **common
        )
    if config.name == "adamw":
        return torch.optim.AdamW(
            [parameter], betas=config.betas, eps=config.eps, fused=True, capturable=capturable, **common
        )
    if config.name == "sgd":
        return torch.optim.SGD([parameter], momentum=config.momentum, fused=True, **common)
    if config.name == "rmsprop":
        return torch.optim.RMSprop(
            [parameter],
            alpha=config.smoothing,
            eps=config.eps,
            momentum=config.momentum,
            foreach=False,  # made for many small parameters, and far from a GPU's speed with a single large one
            capturable=capturable,
            **common,
        )
    raise ValueError(f"expected optimiser.name to be adam, adamw, rmsprop or sgd, got {config.name!r}")


def state_of(optimiser: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Tensor]:
    """What the optimiser remembers: `(R, P)` tensors, and the number of steps, a scalar that all replicas share."""
    return {name: value for name, value in optimiser.state[parameter].items() if isinstance(value, Tensor)}


def set_state(optimiser: torch.optim.Optimizer, parameter: nn.Parameter, state: dict[str, Tensor]) -> None:
    """Let the optimiser go on from there."""
    if state:
        optimiser.state[parameter] = dict(state)
