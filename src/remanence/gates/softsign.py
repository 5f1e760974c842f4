"""The normalised softsign gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Forgetting, Gate


@dataclass(frozen=True)
class Softsign(Gate):
    """f = (s(z/2) + 1) / 2 with s(z) = z / (1 + |z|), which is (1 + z) / (2 + z) for z >= 0.

    The slowly saturating baseline of the fast-gate paper: 1 - f falls only as 1/z, so long timescales are out of reach
    (T = 5000 needs z near 5000). It is there to show that saturation matters; do not choose it for a new model.

    Examples:
        >>> from remanence import timescales
        >>> timescales.timescale_to_bias(5000.0, "softsign")
        tensor(4998.5000, dtype=torch.float64)
    """

    name: ClassVar[str] = "softsign"
    matched: ClassVar[bool] = True

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        (z,) = pre
        positive = z >= 0
        smaller = 1 / (2 + torch.where(positive, z, -z))  # not abs(z): its derivative at zero would be zero
        return Forgetting(
            torch.where(positive, 1 - smaller, smaller),
            torch.where(positive, smaller, 1 - smaller),
        )

    def logit(self, *biases: Tensor) -> Tensor:
        (bias,) = biases
        return bias.sign() * torch.log1p(bias.abs())

    def bias(self, logit: Tensor) -> Tensor:
        return logit.sign() * torch.expm1(logit.abs())
