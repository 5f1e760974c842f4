"""A cell with a precomputed matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .base import BuiltCell, PointwiseCell, Weights


@dataclass(frozen=True)
class BuiltOnceCell(BuiltCell):
    """Another cell with its matrix stored as a weight, for inference.

    In training the matrix would not stay orthogonal or unitary.

    Args:
        of: The cell that builds the matrix.
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
        """Nothing to do: the weights are copied."""

    def built(self, weights: Weights) -> dict[str, Tensor]:
        return {name: weight for name, weight in weights.items() if name != self.start}
