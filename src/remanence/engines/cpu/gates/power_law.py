"""The power-law gate: f = ((d + 1) / (d + eps))^(-p), d the age of what the unit holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ....cells import Weights
from ....gates import PowerLaw
from ..buffers import Scratch
from .base import Decision, GateKernel, Reading, Slopes


class PowerLawKernel(GateKernel):
    """A ratio of ages to the power of -p.

    With k = 1 - r = sigmoid(-z), d' the age before and d the age after the step,

        d = k (d' + dt)       a = k (d' + 1)       x = (r + k dt - eps) / (a + eps), not below 0       f = (1 + x)^(-p)

    which is the gate's formula with the numerator of its ratio written as denominator plus the rest: log1p(x) keeps
    its digits both at large ages and after a reset. At unit steps a = d. Where x is not clamped,

        df/d(-z) = f p (1 - k)(a - eps d) / ((d + 1)(a + eps))         dd/d(-z) = (1 - k) d
        df/dd'   = f p k x / (d + 1)                                   dd/dd'   = k
        df/ddt   = -f p k / (d + 1)                                    dd/ddt   = k
        df/d(-p) = f log(1 + x)

    The row is read as -z and left as k; age and complement are kept, everything else is worked out again.
    """

    gate: PowerLaw
    depends: ClassVar[Mapping[str, tuple[str, ...]]] = {"age": ("reset", "age")}

    def __init__(self, gate: PowerLaw, complement: bool, dt: bool, dtype: torch.dtype) -> None:
        super().__init__(gate, complement, dt, dtype)
        tiny = torch.finfo(dtype).tiny
        self._least = tiny if gate.eps < tiny else None
        """What a + eps is kept from falling below, where it could: the gate does so too."""

    @property
    def kept(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("complement",) if self.complement else ()

    @property
    def signs(self) -> tuple[int, ...]:
        return (-1,)

    @property
    def logistic(self) -> tuple[bool, ...]:
        return (not self.dt,)  # with dt the step needs sigmoid(z) as well as sigmoid(-z)

    def units(self, weights: Weights) -> dict[str, Tensor]:
        exponent = self.gate.exponent(weights, self.dtype)
        return {"minus_p": -exponent} if isinstance(exponent, Tensor) else {}

    def step(self, read: Reading, scratch: Scratch) -> Decision:
        (keep,), (before,), (age,) = read.rows, read.before, read.after
        if read.dt is None:
            torch.addcmul(keep, keep, before, out=age)
            held = torch.add(age, scratch.full(self.gate.eps), out=scratch("held"))
            excess = scratch.full(1 - self.gate.eps)
        else:
            excess = torch.neg(keep, out=scratch("excess")).sigmoid_()
            keep.sigmoid_()
            excess.addcmul_(keep, read.dt).sub_(self.gate.eps).clamp_(min=0)
            torch.add(before, read.dt, out=age).mul_(keep)
            held = torch.addcmul(keep, keep, before, out=scratch("held")).add_(self.gate.eps)
        if self._least is not None:
            held.clamp_(min=self._least)
        log_forget = torch.div(excess, held, out=held).log1p_().mul_(self._minus_p(read))
        if not self.complement:
            return Decision(log_forget.exp_())
        minus_complement = torch.expm1(log_forget, out=read.kept[0])
        forget = torch.add(minus_complement, scratch.full(1), out=log_forget)
        return Decision(forget, minus_complement.neg_())

    def slopes(self, read: Reading, slopes: Slopes, scratch: Scratch) -> Decision:
        (keep,), (before,), (age,) = read.rows, read.before, read.after
        steps, eps = len(keep), self.gate.eps
        held = torch.addcmul(keep, keep, before, out=scratch("held", steps))
        # (a - eps d)(1 - k), into its plane
        by_reset = torch.sub(held, age, alpha=eps, out=slopes.forget["reset"])
        by_reset.addcmul_(by_reset, keep, value=-1)
        held.add_(eps)
        zero = None if self._least is None else held < self._least
        if self._least is not None:
            held.clamp_(min=self._least)

        # x, and log(1 + x)
        excess = scratch("excess", steps)
        if read.dt is None:
            torch.reciprocal(held, out=excess).mul_(1 - eps)
        else:
            torch.mul(keep, read.dt - 1, out=excess).add_(1 - eps).div_(held)
            zero = excess < 0 if zero is None else zero | (excess < 0)
            excess.clamp_(min=0)
        logarithm = torch.log1p(excess, out=scratch("logarithm", steps))
        forget = torch.mul(logarithm, self._minus_p(read), out=scratch("forget", steps)).exp_()
        if "minus_p" in slopes.forget:
            torch.mul(forget, logarithm, out=slopes.forget["minus_p"])

        # f p / (d + 1), in the place of the logarithm
        common = torch.div(forget, torch.add(age, 1, out=logarithm), out=logarithm).mul_(self._minus_p(read)).neg_()
        if zero is not None:
            common.masked_fill_(zero, 0)
        by_reset.mul_(common).div_(held)
        common.mul_(keep)
        torch.mul(common, excess, out=slopes.forget["age"])
        by = slopes.state["age"]
        torch.addcmul(age, age, keep, value=-1, out=by["reset"])
        by["age"].copy_(keep)
        if "dt" in slopes.forget:
            by["dt"].copy_(keep)
            torch.neg(common, out=slopes.forget["dt"])
        return Decision(forget, read.kept[0] if self.complement else None)

    def _minus_p(self, read: Reading) -> Tensor | float:
        return read.units["minus_p"] if self.gate.p is None else -self.gate.p
