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
    """Statistical recurrent unit, see `remanence.cells.SRUCell`: moving averages at several timescales, no gate.

    Args:
        statistics: how many statistics are averaged; None takes hidden_size.
        summary: width of the summary of all averages, of which statistics are made; None takes 0.3 statistics.
        averages: the weight of the past in each moving average, from 0 to below 1.

    All other arguments are those of `torch.nn.GRU`. The state is `(h_n, mu_n)`, mu_n all averages side by side. It has
    no gate, no timescale and no use for dt. `weight_drop` acts on the matrix from the summary to the statistics.
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
