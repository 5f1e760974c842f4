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
    """Gated recurrent unit with a selectable retention gate. With the default gate it equals `torch.nn.GRU`.

    The gate replaces torch's update gate z, the fraction of the hidden state that is kept. The input gate is always
    `1 - forget`.

    Args:
        gate: Retention gate: "sigmoid", "fast", "softsign", "refine", "ur", "power_law", or a `remanence.gates.Gate`.

    All other arguments are those of `remanence.LSTM`, without `proj_size` and `input_gate`.

    Call it as `output, h_n = layer(input, state, dt)`, see `forward`. `h_n` is `(layers * directions, B, H)`; with
    power_law the state is `(h_n, age_n)`.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.GRU(8, 32, gate="refine")
        >>> output, h_n = layer(torch.randn(100, 4, 8))
        >>> output.shape, h_n.shape
        (torch.Size([100, 4, 32]), torch.Size([1, 4, 32]))
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
        """Convert a `torch.nn.GRU`: same arguments, weights, device, dtype and training mode.

        Args:
            layer: The layer to copy.
            keywords: Arguments to change or add, such as `engine`.
        """
        return from_torch(cls, nn.GRU, layer, **keywords)

    def extra_repr(self) -> str:
        return super().extra_repr() + shown_gates(self.gate, self.gate.coupled)
