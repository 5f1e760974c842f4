"""LSTM layers."""

from __future__ import annotations

from typing import Any, Literal, Self, Unpack

from torch import nn

from ..cells import LSTMCell
from ..gates import Gate, PowerLaw, gate_named
from .convert import from_torch
from .keywords import GatedKeywords, completed
from .recurrent import Recurrent

InputGate = Literal["separate", "coupled"]


class LSTM(Recurrent):
    """Long short-term memory with a choice of forget gate; without one, the same as `torch.nn.LSTM`.

    Takes the arguments of `torch.nn.LSTM`, has its parameter names and shapes, loads its `state_dict` and, from the
    same random seed, starts at the same weights.

    Args:
        input_size: number of input features.
        hidden_size: number of units.
        num_layers: layers on top of each other.
        bias: whether there are biases.
        batch_first: whether batched input and output are `(B, T, features)`; the state never is.
        dropout: probability of dropping an output of a layer that goes on to the next one.
        bidirectional: whether a second pass runs from the end.
        proj_size: width of the projected hidden state; 0 for none.
        gate: "sigmoid", "fast", "softsign", "refine", "ur", "power_law", or an object of `remanence.gates`.
        input_gate: "separate" or "coupled" (`1 - forget`); None takes what the gate prefers, which is coupled for
            power_law and separate for all others.
        forget_bias: a number, or "matched" for a forget value of 0.731. None keeps torch's initialisation for sigmoid
            and the gate's own for the others, which is matched for fast, softsign and refine.
        timescales: `Chrono`, `Uniform`, `InverseGamma` or `Fixed` of `remanence.timescales`, or a list with one (or
            None) per layer.
        weight_drop: probability of dropping an entry of `weight_hh`, drawn once per call.
        recompute: number of pieces of a sequence that training computes twice to keep only the states between them:
            8 need less than half of the memory, and the time of a second forward pass. 0 keeps everything.
        engine: how to run: "auto", or the name of an engine.

    Called as `output, (h_n, c_n) = layer(input, state, dt)`, see `forward`; power_law carries its age as well:
    `(h_n, c_n, age_n)`.
    """

    cell: LSTMCell

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
        proj_size: int = 0,
        *,
        gate: str | Gate = "sigmoid",
        input_gate: InputGate | None = None,
        **shared: Unpack[GatedKeywords],
    ) -> None:
        gate = gate_named(gate)
        cell = LSTMCell(gate, is_coupled(input_gate, gate))
        super().__init__(
            cell, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, **shared
        )

    @classmethod
    def from_torch(cls, layer: nn.LSTM, **keywords: Any) -> Self:
        """A layer with the arguments, weights, device, dtype and mode of a `torch.nn.LSTM`."""
        return from_torch(cls, nn.LSTM, layer, **keywords)

    def extra_repr(self) -> str:
        return super().extra_repr() + shown_gates(self.gate, self.cell.coupled)


class PowerLawLSTM(LSTM):
    """The power-law LSTM (pLSTM): `LSTM(gate="power_law", input_gate="coupled")`.

    Args:
        p: None to learn one exponent per unit, starting uniform on (0, 1); or a positive number for all units.
        eps: see `remanence.gates.PowerLaw`; use 1e-5 where steps can be short.
        reset_age: the same.
        input_gate: "coupled", as in the paper's experiments, or "separate".

    All other arguments are those of `LSTM`.
    """

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
        proj_size: int = 0,
        *,
        p: float | None = None,
        eps: float = 1e-3,
        reset_age: float = 0.0,
        input_gate: InputGate = "coupled",
        **shared: Unpack[GatedKeywords],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            gate=PowerLaw(p=p, eps=eps, reset_age=reset_age),
            input_gate=input_gate,
            **shared,
        )


def shown_gates(gate: Gate, coupled: bool) -> str:
    """The part of a layer's repr that names its gates, where they are not the default."""
    shown = "" if gate.name == "sigmoid" else f", gate={gate!r}"
    return shown + ("" if coupled == gate.coupled else f", input_gate={'coupled' if coupled else 'separate'!r}")


def is_coupled(input_gate: str | None, gate: Gate) -> bool:
    """Whether the input gate is one minus the forget gate."""
    if input_gate not in (None, "separate", "coupled"):
        raise ValueError(f"expected input_gate to be 'separate' or 'coupled', got {input_gate!r}")
    return gate.coupled if input_gate is None else input_gate == "coupled"
