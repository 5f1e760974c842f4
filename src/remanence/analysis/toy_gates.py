"""Gates of the toy problem, each as functions of scalars.

Everything is written in u = 1 - f, which keeps its precision where f rounds to one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy
from numpy.typing import NDArray

Numbers = NDArray[numpy.float64]


class ToyGate(ABC):
    """f = phi(z) for f above one half."""

    name: ClassVar[str]
    rate: ClassVar[str]
    """How u falls under gradient flow, as a formula in the time tau."""

    @abstractmethod
    def left(self, z: float) -> float:
        """u at a pre-activation z >= 0."""

    @abstractmethod
    def start(self, left: float) -> float:
        """The z at which u is `left`: the inverse of `left`."""

    @abstractmethod
    def speed(self, left: float) -> float:
        """phi'(z) where 1 - phi(z) is `left`."""

    @abstractmethod
    def bound(self, time: Numbers, span: int) -> Numbers:
        """The asymptotic u at late times of the flow; NaN where it is not yet defined. `span` is n = t1 - t0."""


class ToySoftsign(ToyGate):
    """u = 1 / (2 + z)."""

    name = "softsign"
    rate = "tau^(-1/3)"

    def left(self, z: float) -> float:
        return 1 / (2 + z)

    def start(self, left: float) -> float:
        return 1 / left - 2

    def speed(self, left: float) -> float:
        return left * left

    def bound(self, time: Numbers, span: int) -> Numbers:
        return (3 * span * time) ** (-1 / 3)


class ToySigmoid(ToyGate):
    """u = 1 / (1 + e^z)."""

    name = "sigmoid"
    rate = "tau^(-1)"

    def left(self, z: float) -> float:
        return math.exp(-z) / (1 + math.exp(-z))

    def start(self, left: float) -> float:
        return math.log1p(-left) - math.log(left)

    def speed(self, left: float) -> float:
        return left * (1 - left)

    def bound(self, time: Numbers, span: int) -> Numbers:
        return 1 / (span * time)


class ToyRefine(ToyGate):
    """u = (1 / (1 + e^z))^2: the refine gate with its auxiliary gate r held at one."""

    name = "refine"
    rate = "tau^(-1)"

    def left(self, z: float) -> float:
        return ToySigmoid().left(z) ** 2

    def start(self, left: float) -> float:
        return ToySigmoid().start(math.sqrt(left))

    def speed(self, left: float) -> float:
        return 2 * left * (1 - math.sqrt(left))

    def bound(self, time: Numbers, span: int) -> Numbers:
        return 1 / (4 * span * time)


class ToyFast(ToyGate):
    """u = 1 / (1 + e^sinh z)."""

    name = "fast"
    rate = "exp(2 W(-1 / (2 sqrt(n tau)))), W the -1 branch: tau^(-1) / log^2(tau)"

    def left(self, z: float) -> float:
        return ToySigmoid().left(math.sinh(z))

    def start(self, left: float) -> float:
        return math.asinh(ToySigmoid().start(left))

    def speed(self, left: float) -> float:
        logit = ToySigmoid().start(left)
        return left * (1 - left) * math.sqrt(1 + logit * logit)

    def bound(self, time: Numbers, span: int) -> Numbers:
        """The solution of u log^2(1/u) = 1 / (n tau).

        The paper prints W^2(c tau^-1/2), which on the principal branch falls as 1/tau, like the sigmoid.
        """
        from scipy.special import lambertw

        argument = -1 / (2 * numpy.sqrt(span * time))
        defined = argument >= -1 / math.e
        branch = lambertw(numpy.where(defined, argument, -0.1), -1).real
        return numpy.where(defined, numpy.exp(2 * branch), numpy.nan)


KNOWN: dict[str, ToyGate] = {gate.name: gate for gate in (ToySoftsign(), ToySigmoid(), ToyRefine(), ToyFast())}
