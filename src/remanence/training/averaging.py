"""Averages of weights, from the time on when training no longer improves (NT-ASGD).

Merity, Keskar & Socher, "Regularizing and optimizing LSTM language models" (ICLR 2018): plain SGD until the validation
loss is worse than the best one of all but the latest evaluations; from then on weights are averaged over updates, and
it is the averages that are evaluated. When it began follows from the metrics alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .config import Optimiser


def began(lines: Sequence[dict[str, Any]], config: Optimiser) -> int | None:
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
