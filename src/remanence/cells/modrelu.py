"""The recurrence of networks with an orthogonal or unitary matrix: one matmul and modReLU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import PointwiseCell, Step, Weights

THRESHOLD = "threshold"
"""The bias b of modReLU."""
SMALLEST_SQUARE = 1e-10
"""Added to a squared modulus: the gradient of the square root is infinite at zero."""


def modrelu(z: Tensor, threshold: Tensor) -> Tensor:
    """sign(z) relu(|z| + b): a ReLU with a bias on the modulus, which keeps the sign."""
    return torch.sign(z) * torch.relu(z.abs() + threshold.to(z.dtype))


@dataclass(frozen=True)
class ModReLUCell(PointwiseCell):
    """h_t = modReLU(R h_{t-1} + V x_t),    modReLU(z) = sign(z) relu(|z| + b).

    If R is orthogonal and b is zero, the norm of the state neither grows nor shrinks without input. The cell has no
    other bias, no gate and no timescale.
    """

    name: ClassVar[str] = "modrelu"

    @property
    def blocks(self) -> tuple[str, ...]:
        return ("candidate",)

    @property
    def takes_dt(self) -> bool:
        return False

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return {"hidden": hidden_size}

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        rows = len(self.blocks) * hidden_size
        return {"weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size), THRESHOLD: (hidden_size,)}

    def initialise(self, weights: dict[str, Tensor]) -> None:
        weights[THRESHOLD].uniform_(-0.01, 0.01)

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        z = projected + recurrent
        return Step((modrelu(z, weights[THRESHOLD]),), {"modulus": z.abs()})


@dataclass(frozen=True)
class ComplexModReLUCell(ModReLUCell):
    """h_t = modReLU(R h_{t-1} + V x_t), complex-valued,    modReLU(z) = z / |z| relu(|z| + b).

    A complex number takes two units: its real part is in the first half of the state, its imaginary part in the second.
    |z| needs both, so every unit has a second block for its partner: the rows of R and V with their halves swapped.
    See `paired`.
    """

    name: ClassVar[str] = "modrelu_complex"

    @property
    def blocks(self) -> tuple[str, ...]:
        return ("part", "partner")

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        part, partner = self.rows(projected + recurrent).values()
        modulus = torch.sqrt(part * part + partner * partner + SMALLEST_SQUARE)
        hidden = part * (torch.relu(modulus + weights[THRESHOLD].to(part.dtype)) / modulus)
        return Step((hidden,), {"modulus": modulus})


def paired(real: Tensor, imaginary: Tensor, weight_ih: Tensor, threshold: Tensor) -> dict[str, Tensor]:
    """The weights of a `ComplexModReLUCell`.

    Args:
        real: Real part of the complex matrix, `(n, n)`.
        imaginary: Its imaginary part, `(n, n)`.
        weight_ih: V, real parts above imaginary parts, `(2 n, I)`.
        threshold: b, `(n,)`.
    """
    upper, lower = torch.cat((real, -imaginary), 1), torch.cat((imaginary, real), 1)
    above, below = weight_ih.chunk(2)
    return {
        "weight_ih": torch.cat((above, below, below, above)),
        "weight_hh": torch.cat((upper, lower, lower, upper)),
        THRESHOLD: torch.cat((threshold, threshold)),
    }


def expect_pairs(hidden_size: int) -> None:
    """Raise a ValueError if the number of units is odd."""
    if hidden_size % 2:
        raise ValueError(
            f"expected an even hidden_size (a complex number takes two units, for its real and imaginary part), got "
            f"{hidden_size}"
        )
