"""Remanence: recurrent networks whose forgetting you can choose, set, measure and afford."""

from . import cells, engines, gates, language, models, nn, timescales
from .nn import GRU, JANET, LSTM, NRU, LockedDropout, PhasedLSTM, PowerLawLSTM, make, record, together
from .version import __version__

__all__ = [
    "GRU",
    "JANET",
    "LSTM",
    "NRU",
    "LockedDropout",
    "PhasedLSTM",
    "PowerLawLSTM",
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
