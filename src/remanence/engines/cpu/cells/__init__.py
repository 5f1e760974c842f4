"""Cells on this engine: hand-written LSTM and GRU around a derived gate, and one module for all derived cells."""

import torch

from ....cells import GRUCell, LSTMCell, PointwiseCell
from .base import Arranged, CellKernel, Gradients, Track
from .derived import DerivedKernel
from .gru import GRUKernel
from .lstm import LSTMKernel

KNOWN: dict[type[PointwiseCell], type[CellKernel]] = {LSTMCell: LSTMKernel, GRUCell: GRUKernel}


def kernel_of(cell: PointwiseCell, dt: bool, dtype: torch.dtype) -> CellKernel:
    """The kernel of a cell: hand-written if there is one, otherwise derived."""
    return KNOWN.get(type(cell), DerivedKernel)(cell, dt, dtype)


__all__ = ["KNOWN", "Arranged", "CellKernel", "Gradients", "Track", "kernel_of"]
