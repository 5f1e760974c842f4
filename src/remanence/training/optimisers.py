"""Torch's optimisers from a configuration.

All replicas' parameters are one tensor `(R, P)` (see `population`), so an optimiser has one parameter, its state has a
row for every replica, and rows can be taken out and put back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


START_SCALE = 65536.0
SCALE_PATIENCE = 2000
"""Good updates before the scale is doubled; both as in torch."""


class LossScale:
    """A scale for each of R replicas."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.value = torch.full((count,), START_SCALE, device=device)
        self.good = torch.zeros(count, dtype=torch.int32, device=device)

    def unscale(self, gradients: Tensor) -> Tensor:
        """Divide gradients `(R, P)` in place, and put zeros where a replica's are not finite.

        Returns:
            `(R,)`: whether all of a replica's gradients are finite.
        """
        gradients.div_(self.value.unsqueeze(1))
        fine = gradients.sum(1).isfinite()  # a sum is finite only if its terms are
        gradients.masked_fill_(~fine.unsqueeze(1), 0.0)  # an optimiser must never see them
        grown = torch.where(self.good + 1 >= SCALE_PATIENCE, 2.0, 1.0)
        self.value.mul_(torch.where(fine, grown, 0.5))
        self.good.copy_(torch.where(fine & (grown == 1), self.good + 1, 0))
        return fine

    @contextmanager
    def skipping(self, fine: Tensor, tensors: list[Tensor]) -> Iterator[None]:
        """Undo what happens to the rows of these `(R, P)` tensors where a replica is not fine."""
        before = [tensor.clone() for tensor in tensors]
        yield
        for tensor, old in zip(tensors, before, strict=True):
            tensor.copy_(torch.where(fine.unsqueeze(1), tensor, old))

    def keep(self, chosen: Tensor) -> None:
        self.value, self.good = self.value[chosen], self.good[chosen]

    def of(self, number: int) -> dict[str, Tensor]:
        return {"good": self.good[number].cpu(), "value": self.value[number].cpu()}

    def set(self, number: int, parts: dict[str, Tensor]) -> None:
        self.good[number] = parts["good"]
        self.value[number] = parts["value"]


def averaging_began(lines: Sequence[dict[str, Any]], config: Optimiser) -> int | None:
    """The update after which averaging began, from the evaluations so far; None if it has not.

    An evaluation starts it whose loss is above the lowest of those before it, the latest `patience` left out.
    """
    if config.average == "never":
        return None
    lowest = float("inf")
    losses = [float("inf") if (loss := line["validation"]["loss"]) is None else loss for line in lines]
    for number, line in enumerate(lines):
        if number > config.average_patience:
            lowest = min(lowest, losses[number - config.average_patience - 1])
            if losses[number] > lowest:
                return int(line["update"])
    return None


class Averages:
    """Averaged weights of replicas.

    Args:
        weights: `(R, P)`, as they are now.
    """

    def __init__(self, weights: Tensor) -> None:
        self.values = torch.empty_like(weights)
        """`(R, P)`; of a replica whose averaging has not begun, of no meaning."""
        self.since: list[int | None] = [None] * len(weights)
        """By replica: the update after which averaging began."""

    def begin(self, number: int, update: int, weights: Tensor) -> None:
        """Average this replica's weights over the updates after this one. Once begun, it goes on.

        Args:
            number: of the replica.
            update: after which the averages begin.
            weights: `(P,)`, as they are now: what there is until the next update.
        """
        if self.since[number] is None:
            self.since[number] = update
            self.values[number] = weights

    def add(self, weights: Tensor, update: int) -> None:
        """Take the weights `(R, P)` after so many updates into the averages."""
        for number, since in enumerate(self.since):
            if since is not None:
                self.values[number].lerp_(weights[number], 1 / (update - since))

    def evaluated(self, weights: Tensor, update: int) -> Tensor:
        """What is to be evaluated, `(R, P)`: averages where there are any, else the weights themselves."""
        own = [since is not None and update > since for since in self.since]
        if not any(own):
            return weights
        return torch.stack([mean if has else now for has, mean, now in zip(own, self.values, weights, strict=True)])

    def keep(self, chosen: Sequence[int]) -> None:
        """Go on with these replicas alone."""
        self.values = self.values[list(chosen)]
        self.since = [self.since[number] for number in chosen]
