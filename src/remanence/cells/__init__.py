"""Cells, one file each: the update of the carried state around a gate."""

from .base import Cell, GatedCell, Step, Weights, wide
from .gru import GRUCell
from .janet import JANETCell
from .lstm import LSTMCell
from .nru import NRUCell
from .phased import PhasedLSTMCell

__all__ = [
    "Cell",
    "GRUCell",
    "GatedCell",
    "JANETCell",
    "LSTMCell",
    "NRUCell",
    "PhasedLSTMCell",
    "Step",
    "Weights",
    "wide",
]
