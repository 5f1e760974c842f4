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
    """Phased LSTM, see `remanence.cells.PhasedLSTMCell`: every unit wakes at its own rhythm.

    Args:
        leak: how much a sleeping unit lets through in training; in evaluation nothing.

    All other arguments are those of `remanence.LSTM`, without proj_size. `dt` is the time since the previous step;
    without it steps take one. The state is `(h_n, c_n, clock_n)`, clock_n of shape `(layers * directions, B, 1)` the
    time that has passed since the start of the sequence; with power_law `(h_n, c_n, age_n, clock_n)`.

    Starts as in the authors' frequency task: periods exp(U(1, 3)), shifts U(0, 100), open ratio 0.05, all three
    learned; input bias -0.1 and forget bias 0.
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
        self._fall_asleep()

    def _cell_now(self) -> Cell:
        if self.training:
            return self.cell
        awake, asleep = self.__dict__.get("_asleep", (None, None))
        return asleep if awake is self.cell and asleep is not None else self._fall_asleep()

    def _fall_asleep(self) -> PhasedLSTMCell:
        asleep = replace(self.cell, leak=0.0)
        engines.ready(asleep)
        self._asleep = self.cell, asleep
        return asleep

    def extra_repr(self) -> str:
        leak = "" if self.cell.leak == 1e-3 else f", leak={self.cell.leak}"
        return super().extra_repr() + leak + shown_gates(self.gate, self.cell.coupled)
