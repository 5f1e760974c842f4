"""Remanence: recurrent networks whose forgetting you can choose, set, measure and afford."""

from typing import TYPE_CHECKING, Any

from . import cells, engines, gates, language, models, nn, pretrained, timescales
from .nn import (
    EURNN,
    GORU,
    GRU,
    JANET,
    LSTM,
    NRU,
    SRU,
    ExpRNN,
    GRUCell,
    JANETCell,
    LockedDropout,
    LSTMCell,
    PhasedLSTM,
    PowerLawLSTM,
    PowerLawLSTMCell,
    UnitaryRNN,
    make,
    record,
    together,
)
from .version import __version__

if TYPE_CHECKING:
    from .experiments.fitting import fit

__all__ = [
    "EURNN",
    "GORU",
    "GRU",
    "JANET",
    "LSTM",
    "NRU",
    "SRU",
    "ExpRNN",
    "GRUCell",
    "JANETCell",
    "LSTMCell",
    "LockedDropout",
    "PhasedLSTM",
    "PowerLawLSTM",
    "PowerLawLSTMCell",
    "UnitaryRNN",
    "__version__",
    "cells",
    "engines",
    "fit",
    "gates",
    "language",
    "make",
    "models",
    "nn",
    "pretrained",
    "record",
    "timescales",
    "together",
]


def __getattr__(name: str) -> Any:
    if name == "fit":  # imported on first use: it needs the training code
        from .experiments.fitting import fit

        return fit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
