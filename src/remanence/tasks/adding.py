"""The adding problem: the sum of two marked numbers in a long sequence of numbers.

Hochreiter & Schmidhuber 1997. At every step the input is a number from U(0, 1) and a marker, which is one at two steps
and zero elsewhere. The target is the sum of the two marked numbers, read after the last step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from . import metrics
from .base import Batch, Readout, Score
from .expect import expect_whole
from .sources import Parts, Synthetic


@dataclass(frozen=True, kw_only=True)
class Adding(Synthetic):
    """The adding problem, with one marker in each half of the sequence, as in the public code of related papers.

    The fast-gate paper gives the length, 5000. Generating samples online and the size of the validation set are our
    choices.
    """

    name: ClassVar[str] = "adding"
    readout: ClassVar[Readout] = "last"
    goal: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False

    length: int = 5000
    """Steps of a sequence. If it is odd, the second half is the longer one."""
    train_size: int | None = None
    """Training sequences; None to generate new ones without end, as the paper does."""
    validation_size: int = 1000
    """Validation sequences."""
    test_size: int = 0
    """0 for no test split."""

    def __post_init__(self) -> None:
        expect_whole("length", self.length, least=2)
        self.expect_sizes()

    @property
    def input_size(self) -> int:
        return 2

    @property
    def output_size(self) -> int:
        return 1

    def numbers(self, count: int, generator: torch.Generator) -> Parts:
        device = generator.device
        half = self.length // 2
        values = torch.rand(self.length, count, generator=generator, device=device)
        first = torch.randint(half, (count,), generator=generator, device=device)
        second = torch.randint(half, self.length, (count,), generator=generator, device=device)
        return values, torch.stack((first, second))

    def show(self, parts: Parts) -> Batch:
        values, marked = parts  # (..., T, B), (..., 2, B)
        markers = torch.zeros_like(values).scatter_(-2, marked, 1.0)
        return Batch(torch.stack((values, markers), -1), values.gather(-2, marked).sum(-2))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return metrics.mean(self._squares(outputs, batch))

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        return {"loss": metrics.score(self._squares(outputs, batch))}

    @property
    def references(self) -> dict[str, float]:
        """The loss of always predicting the mean, 1: the variance of the sum of two numbers from U(0, 1)."""
        return {"loss": 1 / 6}

    def _squares(self, outputs: Tensor, batch: Batch) -> Tensor:
        return (outputs.squeeze(-1) - batch.targets).square()
