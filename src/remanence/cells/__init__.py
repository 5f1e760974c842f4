"""Cells, one file each: the equations of one time step, around a forget gate or an orthogonal or unitary matrix."""

from .base import BuiltCell, Cell, GatedCell, PointwiseCell, Step, Weights, wide
from .built_once import BuiltOnceCell
from .eurnn import EURNNCell
from .exprnn import ExpRNNCell
from .goru import GORUCell, ModReLUGRUCell
from .gru import GRUCell
from .janet import JANETCell
from .lstm import LSTMCell
from .modrelu import ComplexModReLUCell, ModReLUCell
from .nru import NRUCell
from .phased import PhasedLSTMCell
from .rotations import Rotations
from .sru import SRUCell
from .urnn import UnitaryRNNCell

__all__ = [
    "BuiltCell",
    "BuiltOnceCell",
    "Cell",
    "ComplexModReLUCell",
    "EURNNCell",
    "ExpRNNCell",
    "GORUCell",
    "GRUCell",
    "GatedCell",
    "JANETCell",
    "LSTMCell",
    "ModReLUCell",
    "ModReLUGRUCell",
    "NRUCell",
    "PhasedLSTMCell",
    "PointwiseCell",
    "Rotations",
    "SRUCell",
    "Step",
    "UnitaryRNNCell",
    "Weights",
    "wide",
]
