"""Timescales a layer starts with, and may be held at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..gates.ur import uniform_logits
from .conversions import as_float64, logit_to_timescale, timescale_to_logit

Freeze = bool | Literal["all"]
"""Whether the biases that set the timescale stay fixed in training; "all" fixes every bias of the layer."""


@dataclass(frozen=True, kw_only=True)
class Timescales(ABC):
    """Timescales of the units of a layer.

    They are set through the biases: the forget bias b_f so that phi(b_f) = exp(-1/T), and the input gate's, where
    there is one, to -logit(phi(b_f)), so that a unit takes in as much as it forgets.

    Args:
        freeze: keep the forget and input biases at these values; "all" keeps every bias of the layer as it starts.
    """

    freeze: Freeze = False

    zero_other_biases: ClassVar[bool] = False
    """Whether the biases of all other blocks start at zero."""

    def __post_init__(self) -> None:
        if self.freeze not in (True, False, "all"):
            raise ValueError(f"expected freeze to be True, False or 'all', got {self.freeze!r}")

    @abstractmethod
    def logits(self, units: int, layer: int, layers: int) -> Tensor | None:
        """logit of every unit's forget value, float64 `(units,)`; None leaves the layer as it is."""

    def covers(self, layer: int) -> bool:
        """Whether it says anything about that layer."""
        return True

    def timescales(self, units: int, layer: int = 0, layers: int = 1) -> Tensor | None:
        """Every unit's timescale, float64 `(units,)`. For random ones: a new draw."""
        logits = self.logits(units, layer, layers)
        return None if logits is None else logit_to_timescale(logits)


@dataclass(frozen=True)
class Chrono(Timescales):
    """b_f ~ log U(1, t_max - 1): timescales about uniform up to t_max.

    Tallec & Ollivier, "Can recurrent neural networks warp time?" (ICLR 2018). `t_max` is the longest dependency
    expected. The biases of the other blocks start at zero.
    """

    t_max: float

    zero_other_biases: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.t_max, int | float) or not 2 <= self.t_max < float("inf"):
            raise ValueError(f"expected t_max to be a number of at least 2, got {self.t_max!r}")

    def logits(self, units: int, layer: int, layers: int) -> Tensor:
        return torch.empty(units, dtype=torch.float64, device="cpu").uniform_(1, self.t_max - 1).log()


@dataclass(frozen=True)
class Uniform(Timescales):
    """Forget values uniform on (1/H, 1 - 1/H): most units short, a few up to about H.

    Gu et al., "Improving the gating mechanism of recurrent neural networks" (ICML 2020).
    """

    def logits(self, units: int, layer: int, layers: int) -> Tensor:
        return uniform_logits(units)


@dataclass(frozen=True)
class InverseGamma(Timescales):
    """Quantiles of an inverse gamma distribution, sorted long to short; nothing is random.

    "Multi-timescale Representation Learning in LSTM Language Models" (ICLR 2021): exponentials whose timescales are
    drawn from InvGamma(alpha, scale 1) decay together as the power law (s + 1)^-alpha. Unit k of H has the timescale
    that a share k/H of the distribution exceeds; the last one, which would be zero, takes share 1 - 1/(2H + 2).
    """

    alpha: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("alpha", self.alpha), ("scale", self.scale)):
            if not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise ValueError(f"expected {name} to be a positive number, got {value!r}")

    def logits(self, units: int, layer: int, layers: int) -> Tensor:
        from scipy.special import gammaincinv

        exceeded = torch.arange(1, units + 1, dtype=torch.float64, device="cpu") / units
        exceeded[-1] = 1 - 1 / (2 * units + 2)
        # T = scale / G with G ~ Gamma(alpha, 1), so P(T > t) = P(G < scale / t).
        return timescale_to_logit(self.scale / torch.from_numpy(gammaincinv(self.alpha, exceeded.numpy())))


Values = float | Sequence[float] | Tensor | None


@dataclass(frozen=True)
class Fixed(Timescales):
    """Timescales given as numbers.

    Args:
        values: one number for all units; a list of one number per unit; or, per layer, a list with one of these or
            None (leave the layer as it is) for each layer, at least one of them a list or None.
    """

    values: Values | Sequence[Values]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values is None or isinstance(self.values, bool):
            raise TypeError(f"expected timescales to be numbers, got {self.values!r}")
        per_layer = self._per_layer()
        for values in [self.values] if per_layer is None else per_layer:
            if values is not None:
                timescale_to_logit(_tensor(values))

    def __repr__(self) -> str:
        values = self.values
        many = isinstance(values, Sequence | Tensor) and len(values) > 6
        shown = f"<{len(values)} values>" if many else repr(values)  # type: ignore[arg-type]
        return f"Fixed({shown}" + (f", freeze={self.freeze!r})" if self.freeze else ")")

    def logits(self, units: int, layer: int, layers: int) -> Tensor | None:
        values = self.values
        per_layer = self._per_layer()
        if per_layer is not None:
            if len(per_layer) != layers:
                raise ValueError(f"expected timescales for {layers} layers, got {len(per_layer)}")
            values = per_layer[layer]
        if values is None:
            return None
        timescales = _tensor(values)
        if timescales.dim() > 1 or timescales.numel() not in (1, units):
            raise ValueError(f"expected one timescale, or {units}, one per unit, got shape {tuple(timescales.shape)}")
        return timescale_to_logit(timescales).expand(units).clone()

    def covers(self, layer: int) -> bool:
        per_layer = self._per_layer()
        return per_layer is None or layer >= len(per_layer) or per_layer[layer] is not None

    def _per_layer(self) -> list[Values] | None:
        values = self.values
        if isinstance(values, Tensor):
            return list(values) if values.dim() == 2 else None
        if isinstance(values, Sequence) and any(
            part is None or (isinstance(part, Sequence | Tensor) and _tensor(part).dim() > 0) for part in values
        ):
            return list(values)
        return None


def _tensor(values: object) -> Tensor:
    try:
        return as_float64(values).cpu()
    except (TypeError, ValueError) as error:
        raise TypeError(f"expected timescales to be numbers, got {values!r}") from error
