"""The LSTM with only a forget gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..gates import Gate
from .base import GatedCell, Step, Weights


@dataclass(frozen=True)
class JANETCell(GatedCell):
    """c_t = phi(s) * c_{t-1} + (1 - phi(s - beta)) * g,  h_t = c_t.

        s = z_f                   g = tanh(z_g)

    Van der Westhuizen & Lasenby, "The unreasonable effectiveness of the forget gate" (2018). No output gate and no
    output nonlinearity. beta > 0 writes more than it forgets; beta = 0 is a convex combination.

    Args:
        gate: Forget gate phi.
        beta: Shift of the pre-activation of the input gate.
    """

    gate: Gate
    beta: float = 1.0

    name: ClassVar[str] = "janet"

    @property
    def blocks(self) -> tuple[str, ...]:
        forget, *others = self.gate.rows
        return (forget, "candidate", *others)

    @property
    def two_biases(self) -> bool:
        return False

    def initialise(self, weights: dict[str, Tensor]) -> None:
        super().initialise(weights)
        if "bias_ih" in weights:
            self.rows(weights["bias_ih"])["candidate"].zero_()

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        _, cell, *carried = state
        rows = self.rows(projected + recurrent)
        forgetting = self.forgetting(rows, tuple(carried), weights, dt)
        written = forgetting.complement
        if self.beta != 0:
            driver = self.gate.rows[0]
            shifted = rows | {driver: rows[driver] - self.beta}
            written = self.forgetting(shifted, tuple(carried), weights, dt).complement
        candidate = torch.tanh(rows["candidate"])
        cell = forgetting.forget * cell + written * candidate
        seen = {
            "cell": cell,
            "forget": forgetting.forget,
            "complement": forgetting.complement,
            "input": written,
            "output": torch.ones_like(cell),
            "candidate": candidate,
            **forgetting.seen,
        }
        return Step((cell, cell, *forgetting.carried), seen)
