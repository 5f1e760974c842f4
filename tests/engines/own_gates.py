"""User-defined gates for tests: each has a feature that the others do not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from remanence.gates import Forgetting, Gate


class Cauchy(Gate):
    """No state, one row."""

    name: ClassVar[str] = "cauchy"

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        angle = torch.atan(pre[0]) / torch.pi
        return Forgetting(0.5 + angle, 0.5 - angle)


class Mixture(Gate):
    """Three rows."""

    name: ClassVar[str] = "mixture"
    rows: ClassVar[tuple[str, ...]] = ("forget", "other", "mix")

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        a, b, mix = pre
        share = torch.sigmoid(mix)
        forget = share * torch.sigmoid(a) + (1 - share) * torch.exp(-functional.softplus(-b))
        return Forgetting(forget, 1 - forget)


class Votes(Gate):
    """Five rows: the largest number of blocks of an LSTM that fits into thread block clusters."""

    name: ClassVar[str] = "votes"
    rows: ClassVar[tuple[str, ...]] = ("forget", "second", "third", "fourth", "fifth")

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        a, b, c, d, e = pre
        logit = a + torch.sigmoid(b) * torch.tanh(c) - torch.sigmoid(d) * torch.tanh(e)
        return Forgetting(torch.sigmoid(logit), torch.sigmoid(-logit))


@dataclass(frozen=True)
class TwoClocks(Gate):
    """Two carried values, two per-unit weights that give three fixed values, and times between steps."""

    pace: float = 0.1

    name: ClassVar[str] = "two_clocks"
    rows: ClassVar[tuple[str, ...]] = ("reset",)
    carries: ClassVar[tuple[str, ...]] = ("age", "average")
    takes_dt: ClassVar[bool] = True
    per_unit = ("rate", "slow")

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        (z,), (age, average) = pre, carried
        passed = 1.0 if dt is None else torch.sqrt(dt)  # a value of dt alone
        age = torch.sigmoid(-z) * (age + passed)
        average = torch.lerp(average, z.tanh(), torch.sigmoid(weights["slow"]))
        log = -functional.softplus(weights["rate"]) * torch.sqrt(1 + age) * (1 + 0.1 * average) * self.pace
        return Forgetting(log.exp(), -log.expm1(), (age, average))

    def parameters(self, units: int) -> dict[str, Tensor]:
        return {name: torch.randn(units, dtype=torch.float64) for name in self.per_unit}


class Handed(Gate):
    """Carried values that do not depend on themselves: each becomes the other, and a row."""

    name: ClassVar[str] = "handed"
    carries: ClassVar[tuple[str, ...]] = ("last", "before_last")

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        (z,), (last, before_last) = pre, carried
        logit = z + 0.5 * last.atan() - 0.25 * before_last.atan()
        return Forgetting(torch.sigmoid(logit), torch.sigmoid(-logit), (z, last))


class Itself(Gate):
    """It carries its forget value."""

    name: ClassVar[str] = "itself"
    carries: ClassVar[tuple[str, ...]] = ("forgot",)

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        forget = torch.sigmoid(pre[0] + carried[0])
        return Forgetting(forget, 1 - forget, (forget,))


class Steep(Gate):
    """One weight that gives two fixed values, and one that nothing depends on."""

    name: ClassVar[str] = "steep"
    per_unit = ("slope", "unused")

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        slope = weights["slope"]
        logit = pre[0] * torch.exp(0.3 * slope) + torch.sin(slope) * torch.cos(pre[0])
        return Forgetting(torch.sigmoid(logit), torch.sigmoid(-logit))

    def parameters(self, units: int) -> dict[str, Tensor]:
        return {name: torch.randn(units, dtype=torch.float64) for name in self.per_unit}


class Product(Gate):
    """Two weights that give one fixed value, which must not be zero, and a carried value."""

    name: ClassVar[str] = "product"
    carries: ClassVar[tuple[str, ...]] = ("sum",)
    per_unit = ("one", "other")

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        total = 0.9 * carried[0] + pre[0]
        logit = torch.tanh(total) / (weights["one"].square() + weights["other"].square()).sqrt()
        return Forgetting(torch.sigmoid(logit), torch.sigmoid(-logit), (total,))

    def parameters(self, units: int) -> dict[str, Tensor]:
        return {name: 1 + torch.rand(units, dtype=torch.float64) for name in self.per_unit}


class Constant(Gate):
    """Depends on a weight alone: its rows are ignored."""

    name: ClassVar[str] = "constant"
    per_unit = ("logit",)

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        logit = weights["logit"].expand_as(pre[0])
        return Forgetting(torch.sigmoid(logit), torch.sigmoid(-logit))

    def parameters(self, units: int) -> dict[str, Tensor]:
        return {"logit": torch.randn(units, dtype=torch.float64)}


OWN: tuple[Gate, ...] = (
    Cauchy(),
    Mixture(),
    TwoClocks(),
    Handed(),
    Itself(),
    Steep(),
    Product(),
    Constant(),
)
"""One gate of each kind."""
