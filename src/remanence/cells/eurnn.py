"""The RNN with a unitary matrix that is a product of rotations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from .base import BuiltCell, Weights, wide
from .modrelu import THRESHOLD, ComplexModReLUCell, expect_pairs, paired
from .rotations import Rotations, full_circle, turned


@dataclass(frozen=True)
class EURNNCell(BuiltCell):
    """h_t = modReLU(W h_{t-1} + V x_t), complex-valued,    W = D F_L ... F_1, a product of `Rotations`.

    hidden_size = 2 n: the real parts of n complex numbers, then the imaginary parts. W has about (L + 1) n real
    parameters, or (log2(n) + 1) n in the FFT form.

    Jing et al., "Tunable efficient unitary neural networks (EUNN) and their application to RNNs" (ICML 2017), with
    the initialisation of the authors' first code: angles and phases from U(-pi, pi), V from U(-0.01, 0.01), b = 0.
    Their later code has b = -0.01, which blocks small inputs.

    Args:
        rotations: Parametrisation of W.
    """

    rotations: Rotations = field(default_factory=Rotations)

    name: ClassVar[str] = "eurnn"

    @property
    def recurrence(self) -> ComplexModReLUCell:
        return ComplexModReLUCell()

    def expect(self, hidden_size: int) -> None:
        expect_pairs(hidden_size)
        self.rotations.expect(hidden_size // 2, "complex numbers (half the hidden_size)")

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        numbers = hidden_size // 2
        angles = self.rotations.angles(numbers)
        return {
            "weight_ih": (hidden_size, input_size),
            "angles": (angles,),
            "phases": (angles,),
            "diagonal": (numbers,),
            THRESHOLD: (numbers,),
        }

    def initialise(self, weights: dict[str, Tensor]) -> None:
        weights["weight_ih"].uniform_(-0.01, 0.01)
        for name in ("angles", "phases", "diagonal"):
            full_circle(weights[name])
        weights[THRESHOLD].zero_()

    def built(self, weights: Weights) -> dict[str, Tensor]:
        diagonal = weights["diagonal"]
        exact = wide(diagonal.dtype)
        angles, phases = (weights[name].to(exact) for name in ("angles", "phases"))
        real, imaginary = self.rotations.matrix(len(diagonal), angles, phases)
        assert imaginary is not None
        return paired(*turned(real, imaginary, diagonal.to(exact)), weights["weight_ih"], weights[THRESHOLD])
