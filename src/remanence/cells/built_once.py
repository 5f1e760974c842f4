"""A cell whose matrix has been built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .base import BuiltCell, PointwiseCell, Weights


@dataclass(frozen=True)
class BuiltOnceCell(BuiltCell):
    """What another cell computes, with the matrix as a weight of its own, for layers that learn no more.

    In training it would not stay orthogonal or unitary.
    """

    of: BuiltCell

    name: ClassVar[str] = "built_once"

    @property
    def start(self) -> str | None:  # type: ignore[override]
        return self.of.start

    @property
    def recurrence(self) -> PointwiseCell:
        return self.of.recurrence

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        shapes = self.recurrence.shapes(input_size, hidden_size, output_size, bias)
        return shapes if self.start is None else shapes | {self.start: (hidden_size,)}

    def initialise(self, weights: dict[str, Tensor]) -> None:
        """They are copied."""

    def built(self, weights: Weights) -> dict[str, Tensor]:
        return {name: weight for name, weight in weights.items() if name != self.start}
