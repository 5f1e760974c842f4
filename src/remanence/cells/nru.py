"""The non-saturating recurrent unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Cell, Step, Weights, affine

SMALLEST_NORM = 1e-12


@dataclass(frozen=True)
class NRUCell(Cell):
    """A ReLU network with a memory that it writes to and erases from, without a gate that could saturate.

        h_t = relu(A [x_t; h_{t-1}; m_{t-1}] + a),   q = [h_t; m_{t-1}]
        alpha, beta = linear(q), in R^k each
        V_a = outer(u1, u2) as k x M with rows of unit L5 norm, u1, u2 = linear(q) in R^s, s^2 = k M; V_b likewise
        m_t = m_{t-1} + mean over heads of (alpha_j V_a[j] - beta_j V_b[j])

    Chandar et al., "Towards non-saturating recurrent units for modelling long-term dependencies" (AAAI 2019), in the
    form of the authors' code, with one bias per linear map. It has no forget gate, hence no timescale. The norm is
    computed without overflow; in their code it overflows in float32 from about 5e7 on, where a write becomes zero.

    Args:
        memory_size: Length M of the memory.
        heads: Number k of write and erase directions; `k * M` must be a square number.
    """

    memory_size: int
    heads: int

    name: ClassVar[str] = "nru"

    def __post_init__(self) -> None:
        for name, value in (("memory_size", self.memory_size), ("heads", self.heads)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"expected {name} to be a positive integer, got {value!r}")
        if self.side**2 != self.memory_size * self.heads:
            nearest = self.heads * max(1, round(math.sqrt(self.memory_size / self.heads))) ** 2
            raise ValueError(
                f"expected memory_size * heads to be a square, got {self.memory_size} * {self.heads} = "
                f"{self.memory_size * self.heads}; use for example memory_size={nearest}"
            )

    @property
    def side(self) -> int:
        """Length s of the vectors whose outer product fills all heads."""
        return math.isqrt(self.memory_size * self.heads)

    @property
    def takes_dt(self) -> bool:
        return False

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return {"hidden": hidden_size, "memory": self.memory_size}

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        writes = 2 * self.heads + 4 * self.side
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (hidden_size, input_size),
            "weight_hh": (hidden_size, hidden_size),
            "weight_mh": (hidden_size, self.memory_size),
            "weight_write": (writes, hidden_size + self.memory_size),
        }
        return shapes | ({"bias_ih": (hidden_size,), "bias_write": (writes,)} if bias else {})

    def initialise(self, weights: dict[str, Tensor]) -> None:
        """Initialise each linear map like `torch.nn.Linear`: uniform within 1/sqrt(fan in)."""
        fan_in = sum(weights[name].shape[1] for name in ("weight_ih", "weight_hh", "weight_mh"))
        for name, weight in weights.items():
            bound = 1 / math.sqrt(weights["weight_write"].shape[1] if "write" in name else fan_in)
            weight.uniform_(-bound, bound)

    def step(self, projected: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None) -> Step:
        hidden, memory = state
        hidden = torch.relu(
            projected + affine(hidden, weights["weight_hh"], None) + affine(memory, weights["weight_mh"], None)
        )
        writes = affine(torch.cat((hidden, memory), -1), weights["weight_write"], weights.get("bias_write"))
        heads, side = self.heads, self.side
        alpha, beta, u1, u2, w1, w2 = torch.split(writes, [heads, heads, side, side, side, side], -1)
        added = (alpha.unsqueeze(-1) * self.directions(u1, u2)).mean(-2)
        erased = (beta.unsqueeze(-1) * self.directions(w1, w2)).mean(-2)
        memory = memory + added - erased
        return Step((hidden, memory), {"memory": memory, "added": added, "erased": erased})

    def directions(self, left: Tensor, right: Tensor) -> Tensor:
        """The outer product as `(B, heads, M)`, each row divided by its L5 norm."""
        outer = (left.unsqueeze(-1) * right.unsqueeze(-2)).reshape(*left.shape[:-1], self.heads, self.memory_size)
        # Norm of the row scaled by its largest entry: fifth powers of small float32 values would underflow.
        largest = outer.detach().abs().amax(-1, keepdim=True).clamp(min=torch.finfo(outer.dtype).tiny)
        norm: Tensor = largest * torch.linalg.vector_norm(outer / largest, 5, -1, keepdim=True)
        return outer / norm.clamp(min=SMALLEST_NORM)
