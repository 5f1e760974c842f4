"""Cells on this engine, one file each."""

from ....cells import GatedCell, GRUCell, JANETCell, LSTMCell
from .base import Arranged, CellKernel, Gradients, Track
from .gru import GRUKernel
from .janet import JANETKernel
from .lstm import LSTMKernel

KNOWN: dict[type[GatedCell], type[CellKernel]] = {LSTMCell: LSTMKernel, GRUCell: GRUKernel, JANETCell: JANETKernel}

__all__ = ["KNOWN", "Arranged", "CellKernel", "Gradients", "Track"]
