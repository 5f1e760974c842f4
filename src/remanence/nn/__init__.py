"""Modules a user touches."""

from .dropout import LockedDropout
from .gru import GRU
from .janet import JANET
from .lstm import LSTM, PowerLawLSTM
from .named import KNOWN, make
from .nru import NRU
from .phased import PhasedLSTM
from .record import record
from .recurrent import Recurrent
from .together import together

__all__ = [
    "GRU",
    "JANET",
    "KNOWN",
    "LSTM",
    "NRU",
    "LockedDropout",
    "PhasedLSTM",
    "PowerLawLSTM",
    "Recurrent",
    "make",
    "record",
    "together",
]
