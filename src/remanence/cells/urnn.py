"""The unitary evolution RNN."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from .base import BuiltCell, Weights, wide
from .modrelu import THRESHOLD, ComplexModReLUCell, expect_pairs, paired
from .rotations import full_circle


@dataclass(frozen=True)
class UnitaryRNNCell(BuiltCell):
    """h_t = modReLU(W h_{t-1} + V x_t), complex-valued,    W = D3 R2 F^-1 D2 P R1 F D1.

    D are diagonal matrices of phases, R = I - 2 v v* / |v|^2 reflections, F the Fourier transform, P a permutation that
    is not learned: 7 n real parameters for a unitary n x n matrix. hidden_size = 2 n: the real parts of all n complex
    numbers, then the imaginary parts.

    Arjovsky, Shah & Bengio, "Unitary evolution recurrent neural networks" (ICML 2016). The initial hidden
    state is learned, as in the authors' code. Phases are initialised from U(-pi, pi) and reflections from U(-1, 1) as
    in the paper; the code has smaller ones.

    Args:
        permutation: P, a permutation of 0 to n - 1. `remanence.UnitaryRNN` uses that of the authors' code.
    """

    permutation: tuple[int, ...]

    name: ClassVar[str] = "urnn"
    start: ClassVar[str | None] = "hidden_start"

    @property
    def recurrence(self) -> ComplexModReLUCell:
        return ComplexModReLUCell()

    def expect(self, hidden_size: int) -> None:
        expect_pairs(hidden_size)
        if sorted(self.permutation) != list(range(hidden_size // 2)):
            raise ValueError(
                f"expected a permutation of {hidden_size // 2} complex numbers, got one of {len(self.permutation)}"
            )

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        numbers = hidden_size // 2
        return {
            "weight_ih": (hidden_size, input_size),
            "phases": (3, numbers),
            "reflections": (2, hidden_size),
            THRESHOLD: (numbers,),
            "hidden_start": (hidden_size,),
        }

    def initialise(self, weights: dict[str, Tensor]) -> None:
        units, inputs = weights["weight_ih"].shape
        glorot = math.sqrt(6 / (inputs + units // 2))
        weights["weight_ih"].uniform_(-glorot, glorot)
        full_circle(weights["phases"])
        weights["reflections"].uniform_(-1, 1)
        weights[THRESHOLD].uniform_(-0.01, 0.01)
        bound = math.sqrt(3 / units)  # a squared norm of 1
        weights["hidden_start"].uniform_(-bound, bound)

    def built(self, weights: Weights) -> dict[str, Tensor]:
        exact = wide(weights["phases"].dtype)
        phases, reflections = weights["phases"].to(exact), weights["reflections"].to(exact)
        one, two, three = torch.polar(torch.ones_like(phases), phases).unsqueeze(-1)
        matrix = torch.fft.fft(torch.diag_embed(one.squeeze(-1)), dim=0, norm="ortho")
        matrix = reflected(matrix, reflections[0])[self._order(weights["phases"])]
        matrix = torch.fft.ifft(two * matrix, dim=0, norm="ortho")
        matrix = three * reflected(matrix, reflections[1])
        return paired(matrix.real, matrix.imag, weights["weight_ih"], weights[THRESHOLD])

    def _order(self, like: Tensor) -> list[int] | Tensor:
        """The permutation as an index; a CUDA graph can only be captured if it is on the device."""
        if like.is_cuda and type(like) in (Tensor, torch.nn.Parameter):  # not while a program is traced
            return on_device(self.permutation, like.device)
        return list(self.permutation)


@lru_cache(maxsize=64)
def on_device(permutation: tuple[int, ...], device: torch.device) -> Tensor:
    """A permutation as a tensor that is made once."""
    with torch.inference_mode(False):
        return torch.tensor(permutation, device=device)


def reflected(matrix: Tensor, direction: Tensor) -> Tensor:
    """Reflect a complex matrix at the plane normal to a vector, given as real and imaginary half."""
    normal = torch.complex(*direction.chunk(2))
    return matrix - (2 / direction.square().sum()) * torch.outer(normal, normal.conj() @ matrix)
