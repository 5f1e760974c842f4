"""The power-law forget gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Forgetting, Gate

NEAR_ZERO = 1e-4
"""p starts in [NEAR_ZERO, 1 - NEAR_ZERO], so that p_hat = logit(p) is finite."""


@dataclass(frozen=True)
class PowerLaw(Gate):
    """f_t = ((d_t + 1) / (d_t + eps))^(-p), where d_t is the age of what the unit holds.

        r_t = sigmoid(z)                                  reset gate (pLSTM eq. 6)
        d_t = (1 - r_t) (d_{t-1} + dt)                    age = t - k_t, k_t the reference time (eqs. 5 and 11)
        f_t = ((d_t + 1) / ((1 - r_t)(d_{t-1} + 1) + eps))^(-p)    (eqs. 7 and 13), never above one
        p   = sigmoid(p_hat)                              one per unit, learned, or a fixed number

    "Slower is Better: Revisiting the Forgetting Mechanism in LSTM for Slower Information Decay". Left alone, a cell
    decays as (n + 1)^(-p) over n steps instead of exponentially: choose it when you do not know how long things must
    be kept, or when samples come at irregular times (pass `dt`). The input gate is coupled unless told otherwise, as
    in the paper's experiments.

    Only the age is carried, never the time, so long sequences lose no precision. A step shorter than eps can push
    the printed formula above one; the age form is clamped. Gradients through a full reset are as large as
    p eps^(p-1): clip them.

    Args:
        p: None to learn one exponent per unit, starting uniform on (0, 1); or a positive number for all units.
        eps: keeps the gradient finite at a full reset. Use 1e-5 where dt can be small.
        reset_age: the age after a full reset; r_t reset_age is added to d_t. It is 0 in the paper, and eps in the first
            author's public code, which resets to t - eps.
    """

    p: float | None = None
    eps: float = 1e-3
    reset_age: float = 0.0

    name: ClassVar[str] = "power_law"
    rows: ClassVar[tuple[str, ...]] = ("reset",)
    carries: ClassVar[tuple[str, ...]] = ("age",)
    takes_dt: ClassVar[bool] = True
    coupled: ClassVar[bool] = True
    two_biases: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.p is not None and not (isinstance(self.p, int | float) and 0 < self.p < float("inf")):
            raise ValueError(f"expected p to be a positive number, or None to learn it, got {self.p!r}")
        if not (isinstance(self.eps, int | float) and 0 <= self.eps < 1):
            raise ValueError(f"expected eps to be a number in [0, 1), got {self.eps!r}")
        if not (isinstance(self.reset_age, int | float) and 0 <= self.reset_age < 1):
            raise ValueError(f"expected reset_age to be a number in [0, 1), got {self.reset_age!r}")

    @property
    def per_unit(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("p_hat",) if self.p is None else ()

    def exponent(self, weights: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor | float:
        """p of every unit, `(H,)`, or the fixed number."""
        return torch.sigmoid(weights["p_hat"].to(dtype)) if self.p is None else self.p

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        (z,), (age,) = pre, carried
        reset, keep = torch.sigmoid(z), torch.sigmoid(-z)
        held = keep * (age + 1) + self.eps
        if dt is None:
            age = keep * (age + 1)
            lost: Tensor | float = 1 - self.eps
        else:
            age = keep * (age + dt)
            lost = (reset + keep * dt - self.eps).clamp(min=0)
        # The ratio of eq. 13 is held / (age + 1), and age + 1 = held + lost: in this form its logarithm keeps all
        # digits at large ages, where the ratio rounds to one, and after a reset or a long gap, where it is small.
        # A step shorter than eps must not amplify, hence the clamp at zero; `held` can vanish only for eps = 0.
        if self.reset_age:
            age, held = age + reset * self.reset_age, held + reset * self.reset_age
        tiny = torch.finfo(age.dtype).tiny
        log_ratio = -torch.log1p(lost / (held if self.eps >= tiny else held.clamp(min=tiny)))
        log_forget = self.exponent(weights, z.dtype) * log_ratio
        return Forgetting(log_forget.exp(), -log_forget.expm1(), (age,), {"reset": reset, "age": age})

    def parameters(self, units: int) -> dict[str, Tensor]:
        if self.p is not None:
            return {}
        p = torch.rand(units, dtype=torch.float64, device="cpu").clamp(NEAR_ZERO, 1 - NEAR_ZERO)
        return {"p_hat": torch.logit(p)}

    def logit(self, *biases: Tensor) -> Tensor:
        raise ValueError(NO_TIMESCALE)

    def bias(self, logit: Tensor) -> Tensor:
        raise ValueError(NO_TIMESCALE)


NO_TIMESCALE = (
    "expected a gate whose forgetting is exponential, got power_law, which has no bias timescale: it decays as a "
    "power of its age, with exponent p and resets instead"
)
