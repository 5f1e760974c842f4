"""Remanence: recurrent networks whose forgetting you can choose, set, measure and afford."""

from . import cells, engines, gates, language, models, nn, timescales
from .nn import (
    GRU,
    JANET,
    LSTM,
    NRU,
    GRUCell,
    JANETCell,
    LockedDropout,
    LSTMCell,
    PhasedLSTM,
    PowerLawLSTM,
    PowerLawLSTMCell,
    make,
    record,
    together,
)
from .version import __version__

__all__ = [
    "GRU",
    "JANET",
    "LSTM",
    "NRU",
    "GRUCell",
    "JANETCell",
    "LSTMCell",
    "LockedDropout",
    "PhasedLSTM",
    "PowerLawLSTM",
    "PowerLawLSTMCell",
    "__version__",
    "cells",
    "engines",
    "gates",
    "language",
    "make",
    "models",
    "nn",
    "record",
    "timescales",
    "together",
]
