"""The fast saturating gate: f = sigmoid(sinh z)."""

from __future__ import annotations

import torch

from ....gates.fast import SATURATED
from ..buffers import Scratch
from .base import Decision, GateKernel, Reading, Slopes


class FastKernel(GateKernel):
    """df/dz = f (1 - f) cosh z, with cosh z = sqrt(1 + sinh^2 z).

    The row is left as sinh z = (e^z - e^-z) / 2, which takes half the time of torch's sinh. Near zero the difference
    has as many digits as a sigmoid can tell apart. Beyond saturation f (1 - f) is zero to the last bit, and so is the
    slope.
    """

    def step(self, read: Reading, scratch: Scratch) -> Decision:
        (row,) = read.rows
        growth = torch.exp(row.clamp_(-SATURATED, SATURATED), out=scratch("growth"))
        torch.mul(growth, scratch.full(0.5), out=row).addcdiv_(scratch.full(-0.5), growth)
        forget = torch.sigmoid(row, out=scratch("forget"))
        if not self.complement:
            return Decision(forget)
        return Decision(forget, torch.neg(row, out=scratch("complement")).sigmoid_())

    def slopes(self, read: Reading, slopes: Slopes, scratch: Scratch) -> Decision:
        (row,) = read.rows
        steps = len(row)
        forget = torch.sigmoid(row, out=scratch("forget", steps))
        lost = scratch("complement", steps)
        if self.complement:
            torch.neg(row, out=lost).sigmoid_()
        else:
            torch.neg(forget, out=lost).add_(1)
        slope = torch.mul(row, row, out=slopes.forget["forget"])
        slope.add_(1).sqrt_().mul_(forget).mul_(lost)
        return Decision(forget, lost if self.complement else None)
