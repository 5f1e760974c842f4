"""The long short-term memory cell around any forget gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..gates import Gate
from .base import GatedCell, Step, Weights


@dataclass(frozen=True)
class LSTMCell(GatedCell):
    """c_t = f * c_{t-1} + i * g,  h_t = o * tanh(c_t).

        f = gate(z_f, ...)        i = sigmoid(z_i), or 1 - f when coupled
        g = tanh(z_g)             o = sigmoid(z_o)

    Blocks are in torch's order i, f, g, o. A coupled cell has no block i. Further rows of the gate come last.

    Args:
        gate: Forget gate.
        coupled: Whether `i = 1 - f` instead of a separate input gate.
    """

    gate: Gate
    coupled: bool = False

    name: ClassVar[str] = "lstm"
    projects: ClassVar[bool] = True

    @property
    def blocks(self) -> tuple[str, ...]:
        forget, *others = self.gate.rows
        inputs = () if self.coupled else ("input",)
        return (*inputs, forget, "candidate", "output", *others)

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        _, cell, *carried = state
        rows = self.rows(projected + recurrent)
        forgetting = self.forgetting(rows, tuple(carried), weights, dt)
        written = forgetting.complement if self.coupled else torch.sigmoid(rows["input"])
        candidate = torch.tanh(rows["candidate"])
        output = torch.sigmoid(rows["output"])
        cell = forgetting.forget * cell + written * candidate
        hidden = output * torch.tanh(cell)
        seen = {
            "cell": cell,
            "forget": forgetting.forget,
            "complement": forgetting.complement,
            "input": written,
            "output": output,
            "candidate": candidate,
            **forgetting.seen,
        }
        return Step((hidden, cell, *forgetting.carried), seen)
