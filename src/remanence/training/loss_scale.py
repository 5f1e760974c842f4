"""Loss scaling for float16: `torch.amp.GradScaler` for every replica on its own, without asking the device.

Small gradients are zero in float16, so the loss is multiplied before the backward pass and the gradient divided after
it. An update whose gradient overflowed is left out and the scale halved; after many good updates it is doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

START = 65536.0
PATIENCE = 2000
"""Good updates before the scale is doubled; both as in torch."""


class LossScale:
    """A scale for each of R replicas."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.value = torch.full((count,), START, device=device)
        self.good = torch.zeros(count, dtype=torch.int32, device=device)

    def unscale(self, gradients: Tensor) -> Tensor:
        """Divide gradients `(R, P)` in place, and put zeros where a replica's are not finite.

        Returns:
            `(R,)`: whether all of a replica's gradients are finite.
        """
        gradients.div_(self.value.unsqueeze(1))
        fine = gradients.sum(1).isfinite()  # a sum is finite only if its terms are
        gradients.masked_fill_(~fine.unsqueeze(1), 0.0)  # an optimiser must never see them
        grown = torch.where(self.good + 1 >= PATIENCE, 2.0, 1.0)
        self.value.mul_(torch.where(fine, grown, 0.5))
        self.good.copy_(torch.where(fine & (grown == 1), self.good + 1, 0))
        return fine

    @contextmanager
    def left_out(self, fine: Tensor, tensors: list[Tensor]) -> Iterator[None]:
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
