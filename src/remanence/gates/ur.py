"""The uniform refine gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .refine import Refine


def uniform_logits(units: int) -> Tensor:
    """Logits of forget values drawn uniformly from (1/H, 1 - 1/H), float64 `(units,)`."""
    margin = min(1 / units, 0.5)
    return torch.logit(torch.empty(units, dtype=torch.float64, device="cpu").uniform_(margin, 1 - margin))


@dataclass(frozen=True)
class UniformRefine(Refine):
    """The refine gate with initial biases b_f = logit(u), u ~ U(1/H, 1 - 1/H), and b_r = -b_f.

    "UR" of Gu et al. (2020). The initial values of f are spread evenly over the units, so the initial timescales
    reach up to about H. Without input r = 1 - f, so the effective forget value is g = 2f - 3f^2 + 2f^3.

    Examples:
        >>> import remanence as rm
        >>> layer = rm.LSTM(8, 256, gate="ur")
        >>> (timescales,) = rm.timescales.of(layer)
        >>> bool(timescales.max() > 20)
        True
    """

    name: ClassVar[str] = "ur"

    def initial_biases(self, units: int) -> tuple[Tensor, ...]:
        return self.complete(uniform_logits(units))

    def complete(self, bias: Tensor) -> tuple[Tensor, ...]:
        return bias, -bias

    def bias(self, logit: Tensor) -> Tensor:
        """Bisection on b: logit(b, -b) increases with b and is within 1 of b."""
        low, high = logit - 1, logit + 1
        for _ in range(60):
            middle = (low + high) / 2
            below = self.logit(middle, -middle) < logit
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2
