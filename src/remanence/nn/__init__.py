"""Recurrent layers (`LSTM`, `GRU`, ...), single-step cells, models by name, and recording of gate activity."""

from ..pretrained import register
from .built_once import built_once
from .dropout import LockedDropout
from .goru import GORU
from .gru import GRU
from .janet import JANET
from .lstm import LSTM, PowerLawLSTM
from .named import KNOWN, make
from .nru import NRU
from .phased import PhasedLSTM
from .record import record
from .recurrent import Recurrent
from .sru import SRU
from .steps import GRUCell, JANETCell, LSTMCell, PowerLawLSTMCell, RecurrentCell
from .together import together
from .unitary import EURNN, ExpRNN, UnitaryRNN

register(LSTM, PowerLawLSTM, GRU, JANET, NRU, PhasedLSTM, ExpRNN, UnitaryRNN, EURNN, GORU, SRU)

__all__ = [
    "EURNN",
    "GORU",
    "GRU",
    "JANET",
    "KNOWN",
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
    "Recurrent",
    "RecurrentCell",
    "UnitaryRNN",
    "built_once",
    "make",
    "record",
    "together",
]
