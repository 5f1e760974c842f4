"""The GRU layer."""

from __future__ import annotations

from typing import Any, Self, Unpack

from torch import nn

from ..cells import GRUCell
from ..gates import Gate, gate_named
from .convert import from_torch
from .keywords import GatedKeywords, completed
from .lstm import shown_gates
from .recurrent import Recurrent


class GRU(Recurrent):
    """Gated recurrent unit with a choice of retention gate; without one, the same as `torch.nn.GRU`.

    The gate takes the place of torch's z, which is what stays of the hidden state. Arguments are those of
    `torch.nn.GRU` and the keywords of `remanence.LSTM`; there is no input gate to choose, what is written is `1 -
    forget`.

    Called as `output, h_n = layer(input, state, dt)`; with power_law the state is `(h_n, age_n)`.
    """

    cell: GRUCell

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
        gate: str | Gate = "sigmoid",
        **shared: Unpack[GatedKeywords],
    ) -> None:
        cell = GRUCell(gate_named(gate))
        super().__init__(cell, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **shared)

    @classmethod
    def from_torch(cls, layer: nn.GRU, **keywords: Any) -> Self:
        """A layer with the arguments, weights, device, dtype and mode of a `torch.nn.GRU`."""
        return from_torch(cls, nn.GRU, layer, **keywords)

    def extra_repr(self) -> str:
        return super().extra_repr() + shown_gates(self.gate, self.gate.coupled)
