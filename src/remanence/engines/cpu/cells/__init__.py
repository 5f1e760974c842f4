"""Cells on this engine, one file each; and one for all that are derived."""

import torch

from ....cells import GatedCell, GRUCell, JANETCell, LSTMCell
from .base import Arranged, CellKernel, Gradients, Track
from .derived import DerivedKernel
from .gru import GRUKernel
from .janet import JANETKernel
from .lstm import LSTMKernel

KNOWN: dict[type[GatedCell], type[CellKernel]] = {LSTMCell: LSTMKernel, GRUCell: GRUKernel, JANETCell: JANETKernel}


def kernel_of(cell: GatedCell, dt: bool, dtype: torch.dtype) -> CellKernel:
    """What runs a cell: by hand around its gate where that is known, derived where not."""
    return KNOWN.get(type(cell), DerivedKernel)(cell, dt, dtype)


__all__ = ["KNOWN", "Arranged", "CellKernel", "Gradients", "Track", "kernel_of"]
