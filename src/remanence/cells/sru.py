"""The statistical recurrent unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Cell, Step, Weights, affine

AVERAGES = (0.0, 0.25, 0.5, 0.9, 0.99)


@dataclass(frozen=True)
class SRUCell(Cell):
    """Moving averages of statistics at several timescales, without a gate.

        r_t   = relu(W_r mu_{t-1} + b_r)                    a summary of the past
        phi_t = relu(W_phi r_t + W_x x_t + b_phi)           statistics of the present
        mu_t^a = a mu_{t-1}^a + (1 - a) phi_t               for every a; mu_t concatenates them
        h_t   = relu(W_h mu_t + b_h)

    Oliva, Poczos & Schneider, "The statistical recurrent unit" (ICML 2017); not the simple recurrent unit, which has
    the same abbreviation. The NRU paper, whose result for it others quote, uses averages 0, 0.5, 0.9, 0.99 and 0.999.
    The decay factors are not learned: it has no forget gate.

    Args:
        statistics: Width of phi.
        summary: Width of r.
        averages: All decay factors a.
    """

    statistics: int
    summary: int
    averages: tuple[float, ...] = AVERAGES

    name: ClassVar[str] = "sru"

    def __post_init__(self) -> None:
        for name, value in (("statistics", self.statistics), ("summary", self.summary)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"expected {name} to be a positive integer, got {value!r}")
        fine = all(isinstance(a, int | float) and 0 <= a < 1 for a in self.averages)
        if not self.averages or not fine:
            raise ValueError(f"expected averages to be numbers from 0 to below 1, got {self.averages}")

    @property
    def takes_dt(self) -> bool:
        return False

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return {"hidden": hidden_size, "averages": len(self.averages) * self.statistics}

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        width = len(self.averages) * self.statistics
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (self.statistics, input_size),
            "weight_hh": (self.statistics, self.summary),
            "weight_summary": (self.summary, width),
            "weight_output": (hidden_size, width),
        }
        biases = {"bias_ih": self.statistics, "bias_summary": self.summary, "bias_output": hidden_size}
        return shapes | ({name: (size,) for name, size in biases.items()} if bias else {})

    def initialise(self, weights: dict[str, Tensor]) -> None:
        """Glorot uniform initialisation with the gain of a ReLU, and zero biases, as in the code of the NRU paper."""
        both = weights["weight_ih"].shape[1] + weights["weight_hh"].shape[1]
        for name, weight in weights.items():
            if "bias" in name:
                weight.zero_()
                continue
            rows, columns = weight.shape
            bound = math.sqrt(12 / (rows + (both if name in ("weight_ih", "weight_hh") else columns)))
            weight.uniform_(-bound, bound)

    def step(self, projected: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None) -> Step:
        _, before = state
        summary = torch.relu(affine(before, weights["weight_summary"], weights.get("bias_summary")))
        statistics = torch.relu(projected + affine(summary, weights["weight_hh"], None))
        parts = before.chunk(len(self.averages), -1)
        after = torch.cat([a * part + (1 - a) * statistics for a, part in zip(self.averages, parts, strict=True)], -1)
        hidden = torch.relu(affine(after, weights["weight_output"], weights.get("bias_output")))
        return Step((hidden, after), {"averages": after, "statistics": statistics, "summary": summary})
