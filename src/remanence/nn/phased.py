"""The phased LSTM layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from .. import engines
from ..cells import Cell, PhasedLSTMCell
from ..gates import Gate, gate_named
from .expect import expect_number
from .keywords import GatedKeywords, completed
from .lstm import InputGate, is_coupled, shown_gates
from .recurrent import Recurrent


class PhasedLSTM(Recurrent):
    """Phased LSTM: every unit updates only while its own periodic time gate is open.

    See `remanence.cells.PhasedLSTMCell` for the equations.

    Args:
        leak: Leak rate of the closed time gate in training; it is 0 in evaluation mode.
        gate: Forget gate, see `remanence.LSTM`.
        input_gate: "separate" or "coupled", see `remanence.LSTM`.

    All other arguments are those of `remanence.LSTM`, without `proj_size`. `dt` is the time since the previous step, 1
    by default. The state is `(h_n, c_n, clock_n)`, where `clock_n` of shape `(layers * directions, B, 1)` is the time
    since the start of the sequence; with power_law it is `(h_n, c_n, age_n, clock_n)`.

    The initialisation is that of the authors' frequency task: periods exp(U(1, 3)), shifts U(0, 100) and open ratio
    0.05, all three learned; input bias -0.1 and forget bias 0.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.PhasedLSTM(2, 16)
        >>> output, (h_n, c_n, clock_n) = layer(torch.randn(50, 4, 2), dt=torch.full((50, 4), 0.5))
        >>> clock_n.flatten().tolist()
        [25.0, 25.0, 25.0, 25.0]
    """

    cell: PhasedLSTMCell

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
        leak: float = 1e-3,
        gate: str | Gate = "sigmoid",
        input_gate: InputGate | None = None,
        **shared: Unpack[GatedKeywords],
    ) -> None:
        gate = gate_named(gate)
        cell = PhasedLSTMCell(gate, is_coupled(input_gate, gate), expect_number("leak", leak))
        super().__init__(cell, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **shared)

    def _ready(self) -> None:
        super()._ready()
        self._make_evaluation_cell()

    def _cell_now(self) -> Cell:
        if self.training:
            return self.cell
        made_from, without_leak = self.__dict__.get("_evaluation_cell", (None, None))
        return without_leak if made_from is self.cell and without_leak is not None else self._make_evaluation_cell()

    def _make_evaluation_cell(self) -> PhasedLSTMCell:
        without_leak = replace(self.cell, leak=0.0)
        engines.ready(without_leak)
        self._evaluation_cell = self.cell, without_leak
        return without_leak

    def extra_repr(self) -> str:
        leak = "" if self.cell.leak == 1e-3 else f", leak={self.cell.leak}"
        return super().extra_repr() + leak + shown_gates(self.gate, self.cell.coupled)
