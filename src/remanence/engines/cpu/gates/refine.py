"""The refine gate: g = r (1 - (1 - f)^2) + (1 - r) f^2."""

from __future__ import annotations

import torch
from torch import Tensor

from ..buffers import Scratch
from .base import Decision, GateKernel, Reading, Slopes


class RefineKernel(GateKernel):
    """A mixture of 1 - (1 - f)^2 and f^2.

    With l = 1 - f and u = 1 - r, in the form that keeps its digits where g nears one,

        g = f (f + 2 (1 - u) l)             1 - g = l (l + 2 u f)
        dg/d(-z_f) = -2 f l (l + u (f - l))
        dg/d(-z_r) = -2 f l u (1 - u)

    The rows are read as sigmoid(-z), which is l and u.
    """

    @property
    def signs(self) -> tuple[int, ...]:
        return (-1, -1)

    @property
    def logistic(self) -> tuple[bool, ...]:
        return (True, True)

    def step(self, read: Reading, scratch: Scratch) -> Decision:
        lost, unrefine = read.rows
        one = scratch.full(1)
        forget = torch.sub(one, lost, out=scratch("sigmoid"))
        refined = torch.sub(one, unrefine, out=scratch("forget"))
        return self._decide(forget, lost, unrefine, refined, scratch("complement"))

    def slopes(self, read: Reading, slopes: Slopes, scratch: Scratch) -> Decision:
        lost, unrefine = read.rows
        steps = len(lost)
        forget = torch.neg(lost, out=scratch("sigmoid", steps)).add_(1)
        refined = torch.neg(unrefine, out=scratch("forget", steps)).add_(1)
        minus_both = torch.mul(forget, lost, out=scratch("product", steps)).mul_(-2)
        torch.mul(refined, unrefine, out=slopes.forget["refine"]).mul_(minus_both)
        torch.sub(forget, lost, out=slopes.forget["forget"]).mul_(unrefine).add_(lost).mul_(minus_both)
        return self._decide(forget, lost, unrefine, refined, scratch("complement", steps))

    def _decide(self, forget: Tensor, lost: Tensor, unrefine: Tensor, refined: Tensor, complement: Tensor) -> Decision:
        """From f, l and u; `refined` holds 1 - u and will hold the forget value."""
        refined.mul_(lost).mul_(2).add_(forget).mul_(forget)
        if not self.complement:
            return Decision(refined)
        torch.mul(unrefine, forget, out=complement).mul_(2).add_(lost).mul_(lost)
        return Decision(refined, complement)
