"""Cells on this engine: LSTM and GRU by hand around a gate, and one file for all that are derived."""

import torch

from ....cells import GRUCell, LSTMCell, PointwiseCell
from .base import Arranged, CellKernel, Gradients, Track
from .derived import DerivedKernel
from .gru import GRUKernel
from .lstm import LSTMKernel

KNOWN: dict[type[PointwiseCell], type[CellKernel]] = {LSTMCell: LSTMKernel, GRUCell: GRUKernel}


def kernel_of(cell: PointwiseCell, dt: bool, dtype: torch.dtype) -> CellKernel:
    """What runs a cell: by hand around its gate where that is known, derived where not."""
    return KNOWN.get(type(cell), DerivedKernel)(cell, dt, dtype)


__all__ = ["KNOWN", "Arranged", "CellKernel", "Gradients", "Track", "kernel_of"]
