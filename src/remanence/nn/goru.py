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
    """Gated orthogonal recurrent unit: a GRU whose candidate has an orthogonal recurrent matrix.

    See `remanence.cells.GORUCell` for the equations.

    Args:
        capacity: Number of layers of rotations whose product is the orthogonal matrix.
        fft: Whether to arrange the rotations as in a fast Fourier transform, in log2(hidden_size) layers; `capacity`
            is then ignored.
        gate: Retention gate, see `remanence.GRU`.

    `hidden_size` must be even, and a power of two with `fft`. All other arguments are those of `remanence.GRU`. The
    gates have one bias vector, `bias_ih_l{k}`; `threshold_l{k}` is the bias of modReLU. The state is `h_n`; with
    power_law it is `(h_n, age_n)`.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.GORU(8, 32, fft=True)
        >>> output, h_n = layer(torch.randn(100, 4, 8))
        >>> output.shape
        torch.Size([100, 4, 32])
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
