"""The recurrent models of the papers by name."""

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
    """Make a layer by the name that the papers use for the model.

    Args:
        name: "lstm", "lstm-chrono" (requires `t_max`), "gru", "plstm", "fast", "softsign", "refine", "ur", "janet"
            (`t_max` if known), "nru", "phased", "mts" (three layers with the fixed timescales of the multi-timescale
            paper), or "exprnn", "urnn", "eurnn", "goru", "sru".
        input_size: Number of input features.
        hidden_size: Number of units in every layer.
        keywords: Any argument of the layer.

    Returns:
        A layer, called as `output, state = layer(input)`. The default has no dropout and no weight drop.

    Raises:
        ValueError: The name is unknown, or a required argument is missing.
        TypeError: The layer has no such keyword argument.

    Examples:
        >>> import remanence as rm
        >>> rm.make("plstm", 8, 64)
        PowerLawLSTM(8, 64, gate=PowerLaw(p=None, eps=0.001, reset_age=0.0))
        >>> rm.make("lstm-chrono", 8, 64, t_max=500)
        LSTM(8, 64, timescales=Chrono(freeze=False, t_max=500))
    """
    maker = lookup("model", name, KNOWN)
    try:
        return maker(input_size, hidden_size, **keywords)
    except TypeError as error:
        if "keyword argument" not in str(error):
            raise
        unknown = str(error).rsplit(" ", 1)[-1]
        raise TypeError(f"expected keyword arguments of model {name!r}, got {unknown}") from None


def chrono(input_size: int, hidden_size: int, *, t_max: float | None = None, **keywords: Any) -> LSTM:
    """An LSTM with chrono initialisation."""
    if t_max is None:
        raise ValueError("expected t_max, the longest dependency, for model 'lstm-chrono', got none")
    return LSTM(input_size, hidden_size, timescales=Chrono(t_max), **keywords)


def multi_timescale(
    input_size: int, hidden_size: int, num_layers: int = 3, *, alpha: float = 0.56, freeze: Any = True, **keywords: Any
) -> LSTM:
    """The recurrent part of the multi-timescale language model.

    Half of the units of the first layer have timescale 3, the others 4. Those of the second layer are quantiles of an
    inverse gamma distribution. Those of the third layer are learned.
    """
    if num_layers != 3:
        raise ValueError(f"expected model 'mts' to have 3 layers, got num_layers={num_layers}")
    expect_size("hidden_size", hidden_size)
    short = [3.0] * (hidden_size // 2) + [4.0] * (hidden_size - hidden_size // 2)
    timescales = [Fixed(short, freeze=freeze), InverseGamma(alpha, freeze=freeze), None]
    return LSTM(input_size, hidden_size, num_layers, timescales=timescales, **keywords)


def gated(gate: str) -> Callable[..., LSTM]:
    """A function that makes an LSTM with this gate."""

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
