"""Optimisers, loss scaling for float16, and averaged weights.

The parameters of all replicas are one tensor `(R, P)` (see `population`), so an optimiser has a single parameter and
its state has one row per replica, which can be saved and restored separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .config import Optimiser


def make(config: Optimiser, parameter: nn.Parameter) -> torch.optim.Optimizer:
    """The torch optimiser of a configuration, in the variant with the fewest kernel launches on this device."""
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    capturable = parameter.device.type == "cuda"  # keeps the step count on the device, as a CUDA graph requires
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
            foreach=False,  # meant for many small parameters, slow for a single large one
            capturable=capturable,
            **common,
        )
    raise ValueError(f"expected optimiser.name to be adam, adamw, rmsprop or sgd, got {config.name!r}")


def state_of(optimiser: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Tensor]:
    """The state of the optimiser: `(R, P)` tensors, and the step count, a scalar shared by all replicas."""
    return {name: value for name, value in optimiser.state[parameter].items() if isinstance(value, Tensor)}


def set_state(optimiser: torch.optim.Optimizer, parameter: nn.Parameter, state: dict[str, Tensor]) -> None:
    """Set the state of the optimiser."""
    if state:
        optimiser.state[parameter] = dict(state)


START_SCALE = 65536.0
SCALE_PATIENCE = 2000
"""Updates without overflow before the scale is doubled; both values are those of torch."""


class LossScale:
    """Loss scaling as in `torch.amp.GradScaler`, separately for each of R replicas, without synchronising the device.

    Small gradients underflow to zero in float16, so the loss is multiplied by the scale before the backward pass and
    the gradient divided by it afterwards. An update whose gradient overflowed is skipped and the scale halved; after
    `SCALE_PATIENCE` updates without overflow it is doubled.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self.value = torch.full((count,), START_SCALE, device=device)
        self.good = torch.zeros(count, dtype=torch.int32, device=device)

    def unscale(self, gradients: Tensor) -> Tensor:
        """Divide gradients `(R, P)` in place; those of a replica with non-finite values become zero.

        Returns:
            `(R,)`: whether all gradients of a replica are finite.
        """
        gradients.div_(self.value.unsqueeze(1))
        fine = gradients.sum(1).isfinite()  # a sum is finite only if all terms are
        gradients.masked_fill_(~fine.unsqueeze(1), 0.0)  # the optimiser state must stay finite
        grown = torch.where(self.good + 1 >= SCALE_PATIENCE, 2.0, 1.0)
        self.value.mul_(torch.where(fine, grown, 0.5))
        self.good.copy_(torch.where(fine & (grown == 1), self.good + 1, 0))
        return fine

    @contextmanager
    def skipping(self, fine: Tensor, tensors: list[Tensor]) -> Iterator[None]:
        """Undo all changes to these `(R, P)` tensors in the rows of replicas that are not fine."""
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
    """The update after which weight averaging began (NT-ASGD), from the evaluations so far; None if it has not.

    Merity, Keskar & Socher, "Regularizing and optimizing LSTM language models" (ICLR 2018): plain SGD until the
    validation loss is higher than the lowest one before the latest `average_patience` evaluations. From then on weights
    are averaged over updates, and the averages are evaluated. The start follows from the metrics alone.
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
    """Averaged weights of replicas, see `averaging_began`.

    Args:
        weights: Current weights `(R, P)`.
    """

    def __init__(self, weights: Tensor) -> None:
        self.values = torch.empty_like(weights)
        """`(R, P)`; meaningless for replicas whose averaging has not begun."""
        self.since: list[int | None] = [None] * len(weights)
        """The update after which averaging began, for every replica."""

    def begin(self, number: int, update: int, weights: Tensor) -> None:
        """Start to average the weights of this replica, unless averaging has begun.

        Args:
            number: Index of the replica.
            update: Update after which averaging begins.
            weights: Current weights `(P,)`, used until the next update.
        """
        if self.since[number] is None:
            self.since[number] = update
            self.values[number] = weights

    def add(self, weights: Tensor, update: int) -> None:
        """Add the weights `(R, P)` after `update` updates to the averages."""
        for number, since in enumerate(self.since):
            if since is not None:
                self.values[number].lerp_(weights[number], 1 / (update - since))

    def evaluated(self, weights: Tensor, update: int) -> Tensor:
        """The weights to evaluate, `(R, P)`: averages where they exist, otherwise the weights themselves."""
        own = [since is not None and update > since for since in self.since]
        if not any(own):
            return weights
        return torch.stack([mean if has else now for has, mean, now in zip(own, self.values, weights, strict=True)])

    def keep(self, chosen: Sequence[int]) -> None:
        """Keep only these replicas."""
        self.values = self.values[list(chosen)]
        self.since = [self.since[number] for number in chosen]
