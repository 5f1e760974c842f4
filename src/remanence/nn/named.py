"""The models of the papers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..names import lookup
from ..timescales import Chrono, Fixed, InverseGamma
from .expect import expect_size
from .goru import GORU
from .gru import GRU
from .janet import JANET
from .lstm import LSTM, PowerLawLSTM
from .nru import NRU
from .phased import PhasedLSTM
from .recurrent import Recurrent
from .sru import SRU
from .unitary import EURNN, ExpRNN, UnitaryRNN


def make(name: str, input_size: int, hidden_size: int, **keywords: Any) -> Recurrent:
    """A layer by the name the papers use.

    Args:
        name: "lstm", "lstm-chrono" (requires `t_max`), "gru", "plstm", "fast", "softsign", "refine", "ur", "janet"
            (`t_max` if known), "nru", "phased", "mts" (three layers with the fixed timescales of the multi-timescale
            paper), or "exprnn", "urnn", "eurnn", "goru", "sru".
        input_size: number of input features.
        hidden_size: number of units, in every layer.
        keywords: any argument of the layer.
    """
    maker = lookup("model", name, KNOWN)
    try:
        return maker(input_size, hidden_size, **keywords)
    except TypeError as error:
        if "keyword argument" not in str(error):
            raise
        unknown = str(error).rsplit(" ", 1)[-1]
        raise TypeError(f"expected keywords that model {name!r} has, got {unknown}") from None


def chrono(input_size: int, hidden_size: int, *, t_max: float | None = None, **keywords: Any) -> LSTM:
    """An LSTM with chrono initialisation."""
    if t_max is None:
        raise ValueError("expected t_max, the longest dependency, for model 'lstm-chrono', got none")
    return LSTM(input_size, hidden_size, timescales=Chrono(t_max), **keywords)


def multi_timescale(
    input_size: int, hidden_size: int, num_layers: int = 3, *, alpha: float = 0.56, freeze: Any = True, **keywords: Any
) -> LSTM:
    """The recurrent part of the multi-timescale language model.

    The first layer's units have timescales 3 and 4, half of them each, the second layer's are quantiles of an inverse
    gamma distribution, the third's are learned.
    """
    if num_layers != 3:
        raise ValueError(f"expected model 'mts' to have 3 layers, got num_layers={num_layers}")
    expect_size("hidden_size", hidden_size)
    short = [3.0] * (hidden_size // 2) + [4.0] * (hidden_size - hidden_size // 2)
    timescales = [Fixed(short, freeze=freeze), InverseGamma(alpha, freeze=freeze), None]
    return LSTM(input_size, hidden_size, num_layers, timescales=timescales, **keywords)


def gated(gate: str) -> Callable[..., LSTM]:
    """An LSTM with that gate."""

    def maker(input_size: int, hidden_size: int, **keywords: Any) -> LSTM:
        return LSTM(input_size, hidden_size, gate=gate, **keywords)

    return maker


KNOWN: dict[str, Callable[..., Recurrent]] = {
    "lstm": LSTM,
    "lstm-chrono": chrono,
    "gru": GRU,
    "plstm": PowerLawLSTM,
    "fast": gated("fast"),
    "softsign": gated("softsign"),
    "refine": gated("refine"),
    "ur": gated("ur"),
    "janet": JANET,
    "nru": NRU,
    "phased": PhasedLSTM,
    "mts": multi_timescale,
    "exprnn": ExpRNN,
    "urnn": UnitaryRNN,
    "eurnn": EURNN,
    "goru": GORU,
    "sru": SRU,
}
