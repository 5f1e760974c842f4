"""The RNN whose recurrent matrix is the matrix exponential of a skew-symmetric one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from .base import BuiltCell, Weights, wide
from .exponential import matrix_exponential
from .modrelu import THRESHOLD, ModReLUCell

Start = Literal["cayley", "henaff"]
STARTS = ("cayley", "henaff")


@dataclass(frozen=True)
class ExpRNNCell(BuiltCell):
    """h_t = modReLU(exp(A) h_{t-1} + V x_t),    A skew-symmetric, so that exp(A) is orthogonal.

    Lezcano-Casado & Martinez-Rubio, "Cheap orthogonal constraints in neural networks" (ICML 2019). The parameters
    are the entries of A above its diagonal; the authors' code trains them with a tenth of the learning rate of the
    rest. A is initialised with 2x2 blocks on its diagonal: rotations by angles from U(-pi, pi) ("henaff"), or by
    -sqrt((1 - cos u) / (1 + cos u)), u from U(0, pi/2) ("cayley").

    Args:
        start_angles: Initialisation of the angles, "cayley" or "henaff".
    """

    start_angles: Start = "cayley"

    name: ClassVar[str] = "exprnn"

    def __post_init__(self) -> None:
        if self.start_angles not in STARTS:
            raise ValueError(f"expected start_angles to be one of {', '.join(STARTS)}, got {self.start_angles!r}")

    @property
    def recurrence(self) -> ModReLUCell:
        return ModReLUCell()

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        entries = hidden_size * (hidden_size - 1) // 2
        return {"weight_ih": (hidden_size, input_size), "skew": (entries,), THRESHOLD: (hidden_size,)}

    def initialise(self, weights: dict[str, Tensor]) -> None:
        units, inputs = weights["weight_ih"].shape
        weights["weight_ih"].normal_(0, math.sqrt(2 / inputs))
        weights[THRESHOLD].uniform_(-0.01, 0.01)
        skew = weights["skew"].zero_()
        angles = skew.new_empty(units // 2)
        if self.start_angles == "henaff":
            angles.uniform_(-math.pi, math.pi)
        else:
            cos = angles.uniform_(0, math.pi / 2).cos()
            angles = -torch.sqrt((1 - cos) / (1 + cos))
        blocks = torch.arange(0, units - 1, 2, device=skew.device)
        # Row k stores units - 1 - k entries; the first of each is next to the diagonal.
        skew[blocks * (units - 1) - blocks * (blocks - 1) // 2] = angles

    def built(self, weights: Weights) -> dict[str, Tensor]:
        weight_ih, skew = weights["weight_ih"], weights["skew"]
        # In float64: repeated squaring in float32 loses two decimal digits at a few hundred units.
        matrix = matrix_exponential(skew_symmetric(skew.double(), len(weight_ih))).to(wide(skew.dtype))
        return {"weight_ih": weight_ih, "weight_hh": matrix, THRESHOLD: weights[THRESHOLD]}


def skew_symmetric(entries: Tensor, size: int) -> Tensor:
    """The skew-symmetric matrix `(n, n)` with these entries above its diagonal, row by row."""
    row, column = torch.triu_indices(size, size, 1, device=entries.device)
    upper = entries.new_zeros(size * size).scatter(0, row * size + column, entries).view(size, size)
    return upper - upper.t()
