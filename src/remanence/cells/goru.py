"""The gated orthogonal recurrent unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from ..gates import Gate
from .base import BuiltCell, Weights, wide
from .gru import GRUCell
from .modrelu import THRESHOLD, modrelu
from .rotations import Rotations, full_circle


@dataclass(frozen=True)
class ModReLUGRUCell(GRUCell):
    """h_t = f * h_{t-1} + (1 - f) * n,  n = modReLU(z_n + r * (U h_{t-1})).

    A GRU with modReLU instead of tanh. It has one bias vector for the gates and the bias b of modReLU; the candidate,
    whose block is the last, has no other bias.

    Args:
        gate: Retention gate.
    """

    name: ClassVar[str] = "modrelu_gru"

    @property
    def blocks(self) -> tuple[str, ...]:
        return ("candidate_reset", *self.gate.rows, "candidate")

    @property
    def biased(self) -> tuple[str, ...]:
        return self.blocks[:-1]

    @property
    def two_biases(self) -> bool:
        return False

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        return super().shapes(input_size, hidden_size, output_size, bias) | {THRESHOLD: (hidden_size,)}

    def initialise(self, weights: dict[str, Tensor]) -> None:
        super().initialise(weights)
        weights[THRESHOLD].fill_(0.01)

    def activate(self, candidate: Tensor, weights: Weights) -> Tensor:
        return modrelu(candidate, weights[THRESHOLD])


@dataclass(frozen=True)
class GORUCell(BuiltCell):
    """h_t = f * h_{t-1} + (1 - f) * n,  n = modReLU(V x_t + r * (U h_{t-1})).

        r = sigmoid(z_r)          f = gate(z_f, ...)          U orthogonal, a product of `Rotations`

    Jing et al., "Gated orthogonal recurrent units: on learning to forget" (2017), in the form of the authors' code,
    and with its initialisation: matrices from U(-0.01, 0.01), angles from U(-pi, pi), b_r = 2, b = 0.01. The gate
    replaces the authors' update gate, the fraction of the hidden state that is kept. They add 0.001 to |z| in modReLU,
    which b can absorb.

    Args:
        gate: Retention gate.
        rotations: Parametrisation of U.
    """

    gate: Gate
    rotations: Rotations = field(default_factory=Rotations)

    name: ClassVar[str] = "goru"

    @property
    def recurrence(self) -> ModReLUGRUCell:
        return ModReLUGRUCell(self.gate)

    def expect(self, hidden_size: int) -> None:
        self.rotations.expect(hidden_size, "units")

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        shapes = self.recurrence.shapes(input_size, hidden_size, output_size, bias)
        gates = len(self.recurrence.biased) * hidden_size
        shapes |= {"weight_hh": (gates, hidden_size)} | ({"bias_ih": (gates,)} if bias else {})
        return shapes | {"angles": (self.rotations.angles(hidden_size),)}

    def initialise(self, weights: dict[str, Tensor]) -> None:
        units = weights["weight_hh"].shape[1]
        for name in ("weight_ih", "weight_hh"):
            weights[name].uniform_(-0.01, 0.01)
        full_circle(weights["angles"])
        weights[THRESHOLD].fill_(0.01)
        if "bias_ih" in weights:
            weights["bias_ih"][:units] = 2.0
        for name, value in self.gate.parameters(units).items():
            weights[name].copy_(value)

    def built(self, weights: Weights) -> dict[str, Tensor]:
        weight_hh, angles = weights["weight_hh"], weights["angles"]
        units, exact = weight_hh.shape[1], wide(angles.dtype)
        matrix, _ = self.rotations.matrix(units, angles.to(exact))
        found = {name: weight for name, weight in weights.items() if name != "angles"}
        found["weight_hh"] = torch.cat((weight_hh.to(exact), matrix))
        if "bias_ih" in found:
            bias = found["bias_ih"]
            found["bias_ih"] = torch.cat((bias, bias.new_zeros(units)))
        return found
