"""The JANET layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..cells import JANETCell
from ..gates import Gate, gate_named
from ..timescales import Chrono, Timescales
from .biases import ForgetBias
from .expect import expect_number
from .lstm import shown_gates
from .recurrent import Recurrent


class JANET(Recurrent):
    """The LSTM with a forget gate only, see `remanence.cells.JANETCell`. One bias vector, `bias_ih_l{k}`.

    Args:
        t_max: longest dependency expected; forget biases then start at log U(1, t_max). Without it, and without
            `timescales`, they start at forget value 0.731, which is bias 1 for the sigmoid.
        beta: how much more is written than forgotten; 0 makes the two exact complements.

    All other arguments are those of `remanence.GRU`. The state is `(h_n, c_n)`, both the same after a step; with
    power_law `(h_n, c_n, age_n)`.
    """

    cell: JANETCell

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
        forget_bias: ForgetBias = None,
        timescales: Timescales | Sequence[Timescales | None] | None = None,
        weight_drop: float = 0.0,
        recompute: int = 0,
        engine: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        gate = gate_named(gate)
        if t_max is not None:
            if timescales is not None or forget_bias is not None:
                raise ValueError(
                    "expected one of t_max, timescales and forget_bias, which set the same biases, got two"
                )
            if expect_number("t_max", t_max) < 1:
                raise ValueError(f"expected t_max to be a number of at least 1, got {t_max!r}")
            timescales = Chrono(t_max + 1)  # JANET draws up to t_max where chrono draws up to t_max - 1
        elif timescales is None and forget_bias is None and gate.name == "sigmoid" and bias:
            forget_bias = 1.0
        super().__init__(
            JANETCell(gate, expect_number("beta", beta)),
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            forget_bias=forget_bias,
            timescales=timescales,
            weight_drop=weight_drop,
            recompute=recompute,
            engine=engine,
            device=device,
            dtype=dtype,
        )

    def extra_repr(self) -> str:
        beta = "" if self.cell.beta == 1 else f", beta={self.cell.beta}"
        return super().extra_repr() + beta + shown_gates(self.gate, self.gate.coupled)
