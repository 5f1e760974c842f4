"""The GORU layer."""

from __future__ import annotations

from typing import Unpack

from ..cells import GORUCell, Rotations
from ..gates import Gate, gate_named
from .expect import expect_size
from .keywords import GatedKeywords, completed
from .lstm import shown_gates
from .recurrent import Recurrent
from .unitary import shown_rotations


class GORU(Recurrent):
    """Gated orthogonal recurrent unit, see `remanence.cells.GORUCell`: a GRU whose candidate forgets nothing by itself.

    Args:
        capacity: how many layers of rotations the orthogonal matrix is a product of.
        fft: whether they are arranged as in a fast Fourier transform, log2 of hidden_size in number; capacity is not
            used then.
        gate: as in `remanence.GRU`: what stays of the hidden state.

    hidden_size is even, a power of two with fft. All other arguments are those of `remanence.GRU`. One bias vector,
    `bias_ih_l{k}`, of the gates; `threshold_l{k}` is the bias of modReLU. The state is `h_n`; with power_law
    `(h_n, age_n)`.
    """

    cell: GORUCell

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
        capacity: int = 2,
        fft: bool = False,
        gate: str | Gate = "sigmoid",
        **shared: Unpack[GatedKeywords],
    ) -> None:
        cell = GORUCell(gate_named(gate), Rotations(capacity, bool(fft)))
        cell.expect(expect_size("hidden_size", hidden_size))
        super().__init__(cell, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **shared)

    def extra_repr(self) -> str:
        shown = shown_rotations(self.cell.rotations)
        return super().extra_repr() + shown + shown_gates(self.gate, self.gate.coupled)
