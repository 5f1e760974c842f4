"""The JANET layer."""

from __future__ import annotations

from typing import Unpack

from ..cells import JANETCell
from ..gates import Gate, gate_named
from ..timescales import Chrono
from .expect import expect_number
from .keywords import GatedKeywords, completed
from .lstm import shown_gates
from .recurrent import Recurrent


class JANET(Recurrent):
    """An LSTM with only a forget gate, see `remanence.cells.JANETCell`. It has one bias vector, `bias_ih_l{k}`.

    Args:
        t_max: Longest dependency expected; initial forget biases are then log U(1, t_max). Without it, and without
            `timescales`, the initial forget value is 0.731, which is bias 1 for the sigmoid.
        beta: How much more is written than forgotten; with 0 the input gate is exactly `1 - forget`.
        gate: Forget gate, see `remanence.LSTM`.

    All other arguments are those of `remanence.GRU`. The state is `(h_n, c_n)`, which are equal after every step; with
    power_law it is `(h_n, c_n, age_n)`.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.JANET(8, 32, t_max=500)
        >>> output, (h_n, c_n) = layer(torch.randn(100, 4, 8))
        >>> torch.equal(h_n, c_n)
        True
    """

    cell: JANETCell

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
        t_max: float | None = None,
        beta: float = 1.0,
        gate: str | Gate = "sigmoid",
        **shared: Unpack[GatedKeywords],
    ) -> None:
        gate = gate_named(gate)
        biases_given = any(shared.get(name) is not None for name in ("timescales", "forget_bias"))
        if t_max is not None:
            if biases_given:
                raise ValueError(
                    "expected one of t_max, timescales and forget_bias, which set the same biases, got two"
                )
            if expect_number("t_max", t_max) < 1:
                raise ValueError(f"expected t_max to be a number of at least 1, got {t_max!r}")
            shared["timescales"] = Chrono(t_max + 1)  # JANET draws up to t_max where chrono draws up to t_max - 1
        elif not biases_given and gate.name == "sigmoid" and bias:
            shared["forget_bias"] = 1.0
        cell = JANETCell(gate, expect_number("beta", beta))
        super().__init__(cell, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **shared)

    def extra_repr(self) -> str:
        beta = "" if self.cell.beta == 1 else f", beta={self.cell.beta}"
        return super().extra_repr() + beta + shown_gates(self.gate, self.gate.coupled)
