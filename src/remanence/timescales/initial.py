"""Initial timescales of a layer, which can be frozen."""

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
"""Whether the biases that set the timescale are frozen in training; "all" freezes every bias of the layer."""


@dataclass(frozen=True, kw_only=True)
class Timescales(ABC):
    """Base class of timescale initialisations. Pass one to a layer as `timescales=`.

    They set the biases of the layer: the forget bias b_f so that phi(b_f) = exp(-1/T), and the bias of a separate input
    gate to -logit(phi(b_f)), so that the input gate starts at `1 - forget`.

    Args:
        freeze: Keep the forget and input biases at these values in training; "all" freezes every bias of the layer.
    """

    freeze: Freeze = False

    zero_other_biases: ClassVar[bool] = False
    """Whether the biases of all other blocks are initialised to zero."""

    def __post_init__(self) -> None:
        if self.freeze not in (True, False, "all"):
            raise ValueError(f"expected freeze to be True, False or 'all', got {self.freeze!r}")

    @abstractmethod
    def logits(self, units: int, layer: int, layers: int) -> Tensor | None:
        """Logit of every unit's forget value.

        Args:
            units: Number of units in the layer.
            layer: Index of the layer.
            layers: Number of layers.

        Returns:
            float64 `(units,)`; None leaves the layer unchanged.
        """

    def covers(self, layer: int) -> bool:
        """Whether this sets the timescales of the layer with this index."""
        return True

    def timescales(self, units: int, layer: int = 0, layers: int = 1) -> Tensor | None:
        """Timescale of every unit. Random initialisations draw new values on every call.

        Args:
            units: Number of units in the layer.
            layer: Index of the layer.
            layers: Number of layers.

        Returns:
            float64 `(units,)`; None if the layer is left unchanged.
        """
        logits = self.logits(units, layer, layers)
        return None if logits is None else logit_to_timescale(logits)


@dataclass(frozen=True)
class Chrono(Timescales):
    """Chrono initialisation, b_f ~ log U(1, t_max - 1): timescales roughly uniform up to t_max.

    Tallec & Ollivier, "Can recurrent neural networks warp time?" (ICLR 2018). The biases of the other blocks are
    initialised to zero.

    Args:
        t_max: Longest dependency expected, at least 2.
        freeze: Whether to freeze these biases in training, see `Timescales`.

    Examples:
        >>> import remanence as rm
        >>> layer = rm.LSTM(8, 256, timescales=rm.timescales.Chrono(1000))
        >>> (timescales,) = rm.timescales.of(layer)
        >>> bool(timescales.min() > 1), bool(timescales.max() < 1000)
        (True, True)
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
    """Forget values uniform on (1/H, 1 - 1/H): most timescales are short, a few reach up to about H.

    Gu et al., "Improving the gating mechanism of recurrent neural networks" (ICML 2020).

    Args:
        freeze: Whether to freeze these biases in training, see `Timescales`.

    Examples:
        >>> import remanence as rm
        >>> layer = rm.LSTM(8, 256, gate="fast", timescales=rm.timescales.Uniform())
    """

    def logits(self, units: int, layer: int, layers: int) -> Tensor:
        return uniform_logits(units)


@dataclass(frozen=True)
class InverseGamma(Timescales):
    """Quantiles of an inverse gamma distribution, from the longest timescale to the shortest; not random.

    "Multi-timescale Representation Learning in LSTM Language Models" (ICLR 2021): exponentials whose timescales are
    drawn from InvGamma(alpha, scale 1) sum to the power law (s + 1)^-alpha. The timescale of unit k of H is exceeded
    with probability k/H; the last one, which would be zero, uses probability 1 - 1/(2H + 2).

    Args:
        alpha: Shape parameter, positive. The multi-timescale language model uses 0.56.
        scale: Scale parameter, positive.
        freeze: Whether to freeze these biases in training, see `Timescales`.

    Examples:
        >>> from remanence import timescales
        >>> timescales.InverseGamma(0.56).timescales(5)
        tensor([21.1728,  5.6654,  2.3750,  1.0838,  0.6132], dtype=torch.float64)
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
    """Given timescales.

    Args:
        values: One number for all units, a list with one number per unit, or a list with one of these or None (leave
            the layer unchanged) per layer. A list per layer must contain at least one list or None.
        freeze: Whether to freeze these biases in training, see `Timescales`.

    Examples:
        >>> import remanence as rm
        >>> layer = rm.LSTM(8, 4, timescales=rm.timescales.Fixed([3.0, 4.0, 20.0, 50.0], freeze=True))
        >>> rm.timescales.of(layer)
        [tensor([ 3.0000,  4.0000, 20.0000, 50.0000], dtype=torch.float64)]
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
