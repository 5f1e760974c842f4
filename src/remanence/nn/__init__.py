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
from .steps import GRUCell, JANETCell, LSTMCell, PowerLawLSTMCell, RecurrentCell
from .together import together

__all__ = [
    "GRU",
    "JANET",
    "KNOWN",
    "LSTM",
    "NRU",
    "GRUCell",
    "JANETCell",
    "LSTMCell",
    "LockedDropout",
    "PhasedLSTM",
    "PowerLawLSTM",
    "PowerLawLSTMCell",
    "Recurrent",
    "RecurrentCell",
    "make",
    "record",
    "together",
]
