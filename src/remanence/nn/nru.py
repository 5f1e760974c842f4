"""The NRU layer."""

from __future__ import annotations

import math
from typing import Unpack

from ..cells import NRUCell
from .expect import expect_size
from .keywords import Keywords, completed
from .ungated import Ungated


class NRU(Ungated):
    """Non-saturating recurrent unit, see `remanence.cells.NRUCell`. It has one bias vector per linear map.

    Args:
        memory_size: Length M of the memory. `M * heads` must be a square number. None uses about half of hidden_size.
        heads: Number k of write and erase directions.

    All other arguments are those of `torch.nn.GRU`. The state is `(h_n, m_n)`, with `m_n` of shape
    `(layers * directions, B, M)`. The layer has no forget gate and no timescale, and does not take dt. `weight_drop`
    acts on the hidden-to-hidden matrix.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.NRU(8, 32, memory_size=16, heads=4)
        >>> output, (h_n, m_n) = layer(torch.randn(100, 4, 8))
        >>> m_n.shape
        torch.Size([1, 4, 16])
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
    """The largest `heads * n**2` that is at most half of hidden_size, or `heads` if there is no such number."""
    hidden_size, heads = expect_size("hidden_size", hidden_size), expect_size("heads", heads)
    return heads * max(1, math.isqrt(hidden_size // (2 * heads))) ** 2
