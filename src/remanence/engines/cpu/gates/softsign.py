"""The normalised softsign gate: f = 1 - 1 / (2 + z) for z >= 0, and 1 / (2 - z) below."""

from __future__ import annotations

import torch
from torch import Tensor

from ..buffers import Scratch
from .base import Decision, GateKernel, Reading, Slopes


class SoftsignKernel(GateKernel):
    """df/dz = 1 / (2 + |z|)^2. The row is left as z."""

    def step(self, read: Reading, scratch: Scratch) -> Decision:
        (row,) = read.rows
        return self._decide(row, scratch("smaller"), scratch("larger"), scratch("forget"), scratch("complement"))

    def slopes(self, read: Reading, slopes: Slopes, scratch: Scratch) -> Decision:
        (row,) = read.rows
        names = ("smaller", "larger", "forget", "complement")
        smaller, larger, forget, complement = (scratch(name, len(row)) for name in names)
        decision = self._decide(row, smaller, larger, forget, complement)
        torch.mul(smaller, smaller, out=slopes.forget["forget"])
        return decision

    def _decide(self, row: Tensor, smaller: Tensor, larger: Tensor, forget: Tensor, complement: Tensor) -> Decision:
        torch.abs(row, out=smaller).add_(2).reciprocal_()
        torch.neg(smaller, out=larger).add_(1)
        positive = row >= 0
        torch.where(positive, larger, smaller, out=forget)
        if not self.complement:
            return Decision(forget)
        return Decision(forget, torch.where(positive, smaller, larger, out=complement))
