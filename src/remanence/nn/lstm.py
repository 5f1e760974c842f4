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
    """Long short-term memory with a selectable forget gate. With the default gate it equals `torch.nn.LSTM`.

    It takes the arguments of `torch.nn.LSTM`, has the same parameter names and shapes, loads its `state_dict` and,
    from the same random seed, starts with the same weights.

    Args:
        input_size: Number of input features I.
        hidden_size: Number of units H.
        num_layers: Number of stacked layers.
        bias: Whether the layer has biases.
        batch_first: Whether batched input and output are `(B, T, features)` instead of `(T, B, features)`. The shape
            of the state does not change.
        dropout: Dropout probability on the output of every layer except the last.
        bidirectional: Whether to add a second pass that runs backwards in time.
        proj_size: Width of the projected hidden state; 0 for no projection.
        gate: Forget gate: "sigmoid", "fast", "softsign", "refine", "ur", "power_law", or a `remanence.gates.Gate`.
        input_gate: "separate" or "coupled" (`input = 1 - forget`). None uses the default of the gate: coupled for
            power_law, separate for all others.
        forget_bias: Initial forget bias: a number, or "matched" for an initial forget value of 0.731. None keeps
            torch's initialisation for sigmoid and the gate's own for the others ("matched" for fast, softsign and
            refine).
        timescales: Initial timescales: `Chrono`, `Uniform`, `InverseGamma` or `Fixed` of `remanence.timescales`, or a
            list with one of them (or None) per layer.
        weight_drop: Probability of dropping an entry of `weight_hh`, drawn once per forward call.
        recompute: Number of chunks for activation checkpointing. Training keeps only the states between the chunks
            and recomputes the rest: 8 chunks need less than half the memory, and a second forward pass. 0 turns it off.
        engine: "auto", or the name of an engine, see `remanence.engines`.
        device: Device of the parameters.
        dtype: Floating-point type of the parameters.

    Call it as `output, (h_n, c_n) = layer(input, state, dt)`, see `forward`. `h_n` is `(layers * directions, B, H)`, or
    `proj_size` wide with a projection; `c_n` is `(layers * directions, B, H)`. The power_law gate also carries the age
    of every unit: `(h_n, c_n, age_n)`.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.LSTM(8, 32, num_layers=2, gate="fast", batch_first=True)
        >>> output, (h_n, c_n) = layer(torch.randn(4, 100, 8))
        >>> output.shape, h_n.shape
        (torch.Size([4, 100, 32]), torch.Size([2, 4, 32]))

        A trained `torch.nn.LSTM` becomes a layer with the same outputs:

        >>> old = torch.nn.LSTM(8, 32)
        >>> new = rm.LSTM.from_torch(old)
        >>> x = torch.randn(50, 1, 8)
        >>> torch.allclose(new(x)[0], old(x)[0], atol=1e-5)
        True
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
        """Convert a `torch.nn.LSTM`: same arguments, weights, device, dtype and training mode.

        Args:
            layer: The layer to copy.
            keywords: Arguments to change or add, such as `engine`.
        """
        return from_torch(cls, nn.LSTM, layer, **keywords)

    def extra_repr(self) -> str:
        return super().extra_repr() + shown_gates(self.gate, self.cell.coupled)


class PowerLawLSTM(LSTM):
    """The power-law LSTM (pLSTM): `LSTM(gate="power_law", input_gate="coupled")`.

    Args:
        p: Exponent of the decay. None learns one exponent per unit, initially uniform on (0, 1); a positive number is
            fixed and the same for all units.
        eps: Keeps the gradient finite at a full reset, see `remanence.gates.PowerLaw`. Use 1e-5 if dt can be small.
        reset_age: Age after a full reset, see `remanence.gates.PowerLaw`.
        input_gate: "coupled", as in the paper's experiments, or "separate".

    All other arguments are those of `LSTM`. `forget_bias` and `timescales` are refused, because this gate has no
    timescale from its biases. The state is `(h_n, c_n, age_n)`.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.PowerLawLSTM(3, 16)
        >>> x, dt = torch.randn(20, 4, 3), torch.rand(20, 4)  # 20 steps of 4 sequences, irregularly sampled
        >>> output, (h_n, c_n, age_n) = layer(x, dt=dt)
        >>> output.shape, age_n.shape
        (torch.Size([20, 4, 16]), torch.Size([1, 4, 16]))
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
    """The part of a layer's repr that names its gates if they are not the default."""
    shown = "" if gate.name == "sigmoid" else f", gate={gate!r}"
    return shown + ("" if coupled == gate.coupled else f", input_gate={'coupled' if coupled else 'separate'!r}")


def is_coupled(input_gate: str | None, gate: Gate) -> bool:
    """Whether the input gate is `1 - forget`."""
    if input_gate not in (None, "separate", "coupled"):
        raise ValueError(f"expected input_gate to be 'separate' or 'coupled', got {input_gate!r}")
    return gate.coupled if input_gate is None else input_gate == "coupled"
