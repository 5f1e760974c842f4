"""The gated recurrent unit around any retention gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..gates import Gate
from .base import GatedCell, Step, Weights


@dataclass(frozen=True)
class GRUCell(GatedCell):
    """h_t = f * h_{t-1} + (1 - f) * n,  n = tanh(z_n + r * (R_n h_{t-1} + b'_n)).

        r = sigmoid(z_r)          f = gate(z_f, ...)

    The form and block order r, z, n of `torch.nn.GRU`. Its z is the *retention*, so the gate replaces z. Papers that
    write h_t = (1 - z) h_{t-1} + z n use z for one minus that.

    Args:
        gate: Retention gate.
    """

    gate: Gate

    name: ClassVar[str] = "gru"

    @property
    def blocks(self) -> tuple[str, ...]:
        forget, *others = self.gate.rows
        return ("candidate_reset", forget, "candidate", *others)

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return {"hidden": hidden_size} | dict.fromkeys(self.gate.carries, hidden_size)

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        hidden, *carried = state
        rows = self.rows(projected + recurrent)
        forgetting = self.forgetting(rows, tuple(carried), weights, dt)
        candidate_reset = torch.sigmoid(rows["candidate_reset"])
        candidate = self.activate(
            self.rows(projected)["candidate"] + candidate_reset * self.rows(recurrent)["candidate"], weights
        )
        hidden = forgetting.forget * hidden + forgetting.complement * candidate
        seen = {
            "cell": hidden,
            "forget": forgetting.forget,
            "complement": forgetting.complement,
            "input": forgetting.complement,
            "output": torch.ones_like(hidden),
            "candidate": candidate,
            "candidate_reset": candidate_reset,
            **forgetting.seen,
        }
        return Step((hidden, *forgetting.carried), seen)

    def activate(self, candidate: Tensor, weights: Weights) -> Tensor:
        """The activation function of the candidate."""
        return torch.tanh(candidate)
