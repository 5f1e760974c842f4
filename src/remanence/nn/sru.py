"""The SRU layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ..cells import SRUCell
from ..cells.sru import AVERAGES
from .expect import expect_size
from .keywords import Keywords, completed
from .ungated import Ungated


class SRU(Ungated):
    """Statistical recurrent unit: moving averages at several fixed timescales, without a gate.

    See `remanence.cells.SRUCell` for the equations.

    Args:
        statistics: Number of statistics that are averaged; None uses hidden_size.
        summary: Width of the summary of all averages, from which the next statistics are computed; None uses
            `0.3 * statistics`.
        averages: Decay factor of each moving average, in [0, 1).

    All other arguments are those of `torch.nn.GRU`. The state is `(h_n, mu_n)`, where `mu_n` holds all averages
    concatenated: `(layers * directions, B, len(averages) * statistics)`. The layer has no forget gate and no learned
    timescale, and does not take dt. `weight_drop` acts on the matrix from the summary to the statistics.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.SRU(8, 32, averages=(0.0, 0.5, 0.9))
        >>> output, (h_n, mu_n) = layer(torch.randn(100, 4, 8))
        >>> mu_n.shape
        torch.Size([1, 4, 96])
    """

    cell: SRUCell

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
        statistics: int | None = None,
        summary: int | None = None,
        averages: Sequence[float] = AVERAGES,
        **shared: Unpack[Keywords],
    ) -> None:
        statistics = expect_size("hidden_size", hidden_size) if statistics is None else statistics
        if summary is None:
            summary = max(1, round(0.3 * expect_size("statistics", statistics)))
        if isinstance(averages, str) or not isinstance(averages, Sequence):
            raise TypeError(f"expected averages to be a list of numbers, got {averages!r}")
        cell = SRUCell(statistics, summary, tuple(averages))
        super().__init__(cell, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **shared)

    def extra_repr(self) -> str:
        cell = self.cell
        shown = f", statistics={cell.statistics}, summary={cell.summary}"
        return super().extra_repr() + shown + ("" if cell.averages == AVERAGES else f", averages={list(cell.averages)}")
