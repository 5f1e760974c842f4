"""The NRU layer."""

from __future__ import annotations

import math
from typing import Unpack

from ..cells import NRUCell
from .expect import expect_size
from .keywords import Keywords, completed
from .ungated import Ungated


class NRU(Ungated):
    """Non-saturating recurrent unit, see `remanence.cells.NRUCell`. One bias vector per linear map.

    Args:
        memory_size: length M of the memory; M times heads must be a square. None takes about half the hidden size.
        heads: number k of write and erase directions.

    All other arguments are those of `torch.nn.GRU`. The state is `(h_n, m_n)`. It has no gate, no timescale and no
    use for dt. `weight_drop` acts on the matrix from hidden to hidden.
    """

    cell: NRUCell

    @completed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        memory_size: int | None = None,
        heads: int = 4,
        **shared: Unpack[Keywords],
    ) -> None:
        cell = NRUCell(fitting_memory(hidden_size, heads) if memory_size is None else memory_size, heads)
        super().__init__(cell, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **shared)

    def extra_repr(self) -> str:
        return super().extra_repr() + f", memory_size={self.cell.memory_size}, heads={self.cell.heads}"


def fitting_memory(hidden_size: int, heads: int) -> int:
    """The largest memory of at most half the hidden size that the heads divide into squares, and at least one head."""
    hidden_size, heads = expect_size("hidden_size", hidden_size), expect_size("heads", heads)
    return heads * max(1, math.isqrt(hidden_size // (2 * heads))) ** 2
