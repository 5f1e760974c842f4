"""The power-law forget gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Forgetting, Gate

NEAR_ZERO = 1e-4
"""The initial p is in [NEAR_ZERO, 1 - NEAR_ZERO], so that p_hat = logit(p) is finite."""


@dataclass(frozen=True)
class PowerLaw(Gate):
    """f_t = ((d_t + 1) / (d_t + eps))^(-p), where d_t is the age of the unit's content: the time since its last reset.

        r_t = sigmoid(z)                                  reset gate (pLSTM eq. 6)
        d_t = (1 - r_t) (d_{t-1} + dt)                    age = t - k_t, k_t the reference time (eqs. 5 and 11)
        f_t = ((d_t + 1) / ((1 - r_t)(d_{t-1} + 1) + eps))^(-p)    (eqs. 7 and 13), never above one
        p   = sigmoid(p_hat)                              one per unit, learned, or a fixed number

    "Slower is Better: Revisiting the Forgetting Mechanism in LSTM for Slower Information Decay". Without input, a cell
    decays as (n + 1)^(-p) over n steps instead of exponentially. Choose it if you do not know how long the network must
    remember, or if samples come at irregular times (pass `dt`). The input gate is coupled by default, as in the paper's
    experiments.

    The state holds only the age, never the absolute time, so long sequences lose no precision. With a step shorter than
    eps the formula of the paper can exceed one; here it is clamped. Gradients through a full reset are as large as
    p eps^(p-1): clip them.

    Args:
        p: Exponent of the decay. None learns one exponent per unit, initially uniform on (0, 1); a positive number is
            fixed and the same for all units.
        eps: Keeps the gradient finite at a full reset. Use 1e-5 if dt can be small.
        reset_age: The age after a full reset; r_t reset_age is added to d_t. It is 0 in the paper, and eps in the first
            author's public code, which resets to t - eps.

    Examples:
        >>> import remanence as rm
        >>> rm.LSTM(8, 32, gate=rm.gates.PowerLaw(p=0.5))
        LSTM(8, 32, gate=PowerLaw(p=0.5, eps=0.001, reset_age=0.0))
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
        """The exponent p of every unit, `(H,)`, or the fixed number."""
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
        # The ratio of eq. 13 is held / (age + 1), and age + 1 = held + lost. In this form its logarithm is accurate at
        # large ages, where the ratio rounds to one, and after a reset or a long gap, where it is small. A step shorter
        # than eps must not amplify, hence the clamp at zero; `held` can be zero only for eps = 0.
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
    "expected a gate with exponential decay, got power_law, which has no bias timescale: it decays as a power of its "
    "age, with exponent p"
)
