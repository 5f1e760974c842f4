"""The sigmoid gate of the standard LSTM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Forgetting, Gate


@dataclass(frozen=True)
class Sigmoid(Gate):
    """f = 1 / (1 + exp(-z)).

    The gate of Gers et al. (2000) and of `torch.nn.LSTM`, whose initialisation it keeps. It saturates as exp(-z):
    a unit with timescale T needs a bias of about log T, and gradients through the gate shrink as 1/T.

    Examples:
        >>> import torch
        >>> from remanence import gates
        >>> z = torch.tensor([[0.0, 2.0]])
        >>> gates.Sigmoid()((z,), (), {}, None).forget
        tensor([[0.5000, 0.8808]])
    """

    name: ClassVar[str] = "sigmoid"

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        (z,) = pre
        return Forgetting(torch.sigmoid(z), torch.sigmoid(-z))

    def logit(self, *biases: Tensor) -> Tensor:
        (bias,) = biases
        return bias

    def bias(self, logit: Tensor) -> Tensor:
        return logit
