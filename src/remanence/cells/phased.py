"""The phased LSTM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Step, Weights
from .lstm import LSTMCell

SHORTEST = 1e-3
"""Lower bound of learned periods and open ratios: at zero the phase is undefined."""


@dataclass(frozen=True)
class PhasedLSTMCell(LSTMCell):
    """Each unit updates while its time gate k is open, for a fraction of its own period, and holds its state otherwise.

        phase = ((t + shift) mod period) / period
        k = 2 phase / open                 phase < open / 2
            2 - 2 phase / open             open / 2 <= phase < open
            leak * phase                   otherwise (leak is zero in evaluation)
        (c', h') = LSTM step with peepholes (i and f see c_{t-1}, o sees c')
        c_t = k c' + (1 - k) c_{t-1},   h_t = k h' + (1 - k) h_{t-1}

    Neil et al., "Phased LSTM" (2016), in the form of the authors' code. t is the clock, the sum of all dt so far, which
    is part of the state. The state of the gate is held with that of the unit.

    Args:
        gate: Forget gate.
        coupled: Whether `i = 1 - f`.
        leak: Leak rate of the closed time gate.
    """

    leak: float = 1e-3

    name: ClassVar[str] = "phased"
    projects: ClassVar[bool] = False

    @property
    def takes_dt(self) -> bool:
        return True

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return super().widths(hidden_size, output_size) | {"clock": 1}

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        own = ["peephole_forget", "peephole_output", "period", "shift", "open_ratio"]
        if not self.coupled:
            own.insert(0, "peephole_input")
        return super().shapes(input_size, hidden_size, output_size, bias) | dict.fromkeys(own, (hidden_size,))

    def initialise(self, weights: dict[str, Tensor]) -> None:
        super().initialise(weights)
        weights["period"].uniform_(1, 3).exp_()
        weights["shift"].uniform_(0, 100)
        weights["open_ratio"].fill_(0.05)
        starts = {"input": -0.1, self.gate.rows[0]: 0.0}
        vectors = [weights[name] for name in ("bias_ih", "bias_hh") if name in weights]
        for vector in vectors:
            rows = self.rows(vector)
            for name in starts.keys() & rows.keys():
                rows[name].fill_(starts[name] if vector is vectors[-1] else 0.0)

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        hidden, cell, *carried, clock = state
        clock = clock + (1 if dt is None else dt)
        opening = self.opening(clock, weights)

        rows = self.rows(projected + recurrent)
        driver = self.gate.rows[0]
        rows[driver] = rows[driver] + weights["peephole_forget"].to(cell.dtype) * cell
        forgetting = self.forgetting(rows, tuple(carried), weights, dt)
        if self.coupled:
            written = forgetting.complement
        else:
            written = torch.sigmoid(rows["input"] + weights["peephole_input"].to(cell.dtype) * cell)
        candidate = torch.tanh(rows["candidate"])
        proposal = forgetting.forget * cell + written * candidate
        output = torch.sigmoid(rows["output"] + weights["peephole_output"].to(cell.dtype) * proposal)

        old = (hidden, cell, *carried)
        new = (output * torch.tanh(proposal), proposal, *forgetting.carried)
        state = tuple(opening * after + (1 - opening) * before for after, before in zip(new, old, strict=True))
        seen = {
            "cell": state[1],
            "forget": forgetting.forget,
            "complement": forgetting.complement,
            "input": written,
            "output": output,
            "candidate": candidate,
            "opening": opening,
            **forgetting.seen,
        }
        return Step((*state, clock), seen | dict(zip(self.gate.carries, state[2:], strict=True)))

    def opening(self, clock: Tensor, weights: Weights) -> Tensor:
        """The time gate k, `(B, H)`, at these times `(B, 1)`."""
        period = weights["period"].to(clock.dtype).clamp(min=SHORTEST)
        open_ratio = weights["open_ratio"].to(clock.dtype).clamp(min=SHORTEST)
        phase = torch.remainder(clock + weights["shift"].to(clock.dtype), period) / period
        rise = 2 * phase / open_ratio
        return torch.where(phase < open_ratio / 2, rise, torch.where(phase < open_ratio, 2 - rise, self.leak * phase))
