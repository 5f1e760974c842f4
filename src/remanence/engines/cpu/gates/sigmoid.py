"""The logistic gate: f = 1 / (1 + exp(-z))."""

from __future__ import annotations

import torch

from ..buffers import Scratch
from .base import Decision, GateKernel, Reading, Slopes


class SigmoidKernel(GateKernel):
    """df/dz = f (1 - f).

    Where the complement is needed the row is read as sigmoid(-z), which is the complement; f = 1 - that.
    """

    @property
    def signs(self) -> tuple[int, ...]:
        return (-1,) if self.complement else (1,)

    @property
    def logistic(self) -> tuple[bool, ...]:
        return (True,)

    def step(self, read: Reading, scratch: Scratch) -> Decision:
        (row,) = read.rows
        if not self.complement:
            return Decision(row)
        return Decision(torch.sub(scratch.full(1), row, out=scratch("forget")), row)

    def slopes(self, read: Reading, slopes: Slopes, scratch: Scratch) -> Decision:
        (row,) = read.rows
        slope = slopes.forget["forget"]
        if not self.complement:
            torch.addcmul(row, row, row, value=-1, out=slope)
            return Decision(row)
        torch.addcmul(row, row, row, value=-1, out=slope).neg_()  # by the row, which is -z
        forget = torch.neg(row, out=scratch("forget", len(row))).add_(1)
        return Decision(forget, row)
