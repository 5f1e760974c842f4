"""Frequency discrimination: does a sampled sine have a period between 5 and 6?

Neil et al. 2016 (Phased LSTM), as used by the pLSTM paper (Table 3). A sequence has duration D ~ U(15, 125), starts at
U(0, 125 - D), and is x(t) = sin(2 pi t / period - phase) with phase ~ U(0, D), as in the public code of the Phased
LSTM. Class 1 has a period from U(5, 6), class 0 any other period from 1 to 100.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..nn.expect import is_number
from .base import Batch, Readout
from .classification import Classification
from .expect import expect_flag, expect_one_of
from .sources import Parts, Synthetic

Sampling = Literal["sync-1", "sync-0.1", "async"]
Periods = Literal["uniform", "log-uniform"]

SHORTEST, LONGEST = 15, 125
"""Range of the duration, and of the number of asynchronous samples."""
SPECIAL = 5.0, 6.0
"""Periods of class 1."""
ALL = 1.0, 100.0
"""Range of the periods of class 0."""
RATES = {"sync-1": 1, "sync-0.1": 10}
"""Synchronous samples per unit of time."""


@dataclass(frozen=True, kw_only=True)
class Frequency(Synthetic, Classification):
    """Sines sampled at regular or random times, padded at the end.

    (The public code pads at the start. That makes no difference: the model is read after the last sample either way.)
    """

    name: ClassVar[str] = "frequency"
    readout: ClassVar[Readout] = "last"
    goal: ClassVar[str] = "accuracy"

    sampling: Sampling = "sync-1"
    """A sample every 1 or 0.1 units, or "async": 15 to 124 samples (the integer part of U(15, 125)) at random times."""
    time_input: bool = False
    """Whether the time of a sample is a second input. The batch has it as `dt` in any case."""
    time_scale: float = 1.0
    """Divisor of the time input. The paper leaves it open: raw time is our reading, 100 the variant."""
    periods: Periods = "uniform"
    """Distribution of the periods of class 0. "uniform" on [1, 5] and [6, 100] is the paper's text. "log-uniform" on
    [1, 100] is the public code, in which a period that happens to fall between 5 and 6 becomes class 1."""
    train_size: int | None = None
    """Training sequences; None to generate new ones without end, as the public code does (5000 are an epoch)."""
    validation_size: int = 2000
    """Size of a fixed set; our choice (the public code makes 500 new ones every epoch)."""
    test_size: int = 0
    """0 for no test split."""

    def __post_init__(self) -> None:
        expect_one_of("sampling", self.sampling, ("sync-1", "sync-0.1", "async"))
        expect_flag("time_input", self.time_input)
        if not is_number(self.time_scale) or self.time_scale <= 0:
            raise ValueError(f"expected time_scale to be a positive number, got {self.time_scale!r}")
        expect_one_of("periods", self.periods, ("uniform", "log-uniform"))
        self.expect_sizes()

    @property
    def input_size(self) -> int:
        return 2 if self.time_input else 1

    @property
    def output_size(self) -> int:
        return 2

    @property
    def steps(self) -> int:
        """T: number of samples of the longest possible sequence."""
        return LONGEST * RATES.get(self.sampling, 1)

    def numbers(self, count: int, generator: torch.Generator) -> Parts:
        low, high = SPECIAL
        first, last = ALL
        others = (first, last - (high - low)) if self.periods == "uniform" else (math.log(first), math.log(last))
        ranges = [(SHORTEST, LONGEST), (0, 1), (0, 1), SPECIAL, others]  # duration, start, phase, special, other
        if self.sampling != "async":
            return (uniform(ranges, count, generator),)
        drawn = uniform([*ranges, (SHORTEST, LONGEST)], count, generator)  # and the number of samples
        shape = (self.steps, count)
        return drawn, torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)

    def made(self, numbers: Parts) -> Parts:
        drawn, *chosen = numbers  # (..., 5 or 6, B), (..., T, B)
        duration, start, phase, special, other, *samples = drawn.unbind(-2)
        if self.periods == "uniform":
            # Uniform on the two intervals joined together; values above the joint are then shifted up.
            low, high = SPECIAL
            other = torch.where(other < low, other, other + (high - low))
        else:
            other = other.exp()
        times, lengths = self._sample(duration, *samples, *chosen)
        is_special = torch.arange(drawn.shape[-1], device=drawn.device) % 2 == 0  # even indices are class 1
        period = torch.where(is_special, special, other)
        return period, phase * duration, times + (start * (LONGEST - duration)).unsqueeze(-2), lengths

    def _sample(
        self, duration: Tensor, samples: Tensor | None = None, chosen: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Times since the start, float64 `(..., T, B)`, or `(T, 1)` if all are equal; number of samples `(..., B)`.

        Times are float64 because neighbours can be as close as 1e-5, about one float32 rounding error at 125.
        """
        steps = torch.arange(self.steps, device=duration.device).unsqueeze(1)
        if samples is None or chosen is None:
            rate = RATES[self.sampling]
            return steps.double() / rate, (duration * rate).ceil().long()
        lengths = samples.long()
        chosen = torch.where(steps < lengths.unsqueeze(-2), chosen, 1.0)  # Surplus samples are sorted to the end.
        return chosen.sort(-2).values * duration.unsqueeze(-2), lengths

    def show(self, parts: Parts) -> Batch:
        period, phase, times, lengths = parts  # (..., B), (..., B), (..., T, B), (..., B)
        present = torch.arange(self.steps, device=times.device).unsqueeze(1) < lengths.unsqueeze(-2)
        wave = torch.sin(2 * math.pi * times / period.unsqueeze(-2) - phase.unsqueeze(-2))
        inputs = torch.stack((wave, times / self.time_scale), -1) if self.time_input else wave.unsqueeze(-1)
        # The first sample has no predecessor. The paper leaves its dt open; we use 1, so that all steps of sync-1 are
        # equal.
        dt = torch.cat((torch.ones_like(times[..., :1, :]), times.diff(dim=-2)), -2)
        low, high = SPECIAL
        return Batch(
            torch.where(present.unsqueeze(-1), inputs, 0).float(),
            ((period >= low) & (period <= high)).long(),
            dt=torch.where(present, dt, 1).float(),
            lengths=lengths,
        )

    @property
    def references(self) -> dict[str, float]:
        """Scores of a model that knows only the class frequencies."""
        share = 0.5
        if self.periods == "log-uniform":
            share += 0.5 * math.log(SPECIAL[1] / SPECIAL[0]) / math.log(ALL[1] / ALL[0])
        return {"loss": -share * math.log(share) - (1 - share) * math.log(1 - share), "accuracy": share}


def uniform(ranges: Sequence[tuple[float, float]], count: int, generator: torch.Generator) -> Tensor:
    """One row of uniform random numbers per range, float64 `(ranges, B)`: one tensor, to be stacked in one call."""
    rows = torch.empty(len(ranges), count, dtype=torch.float64, device=generator.device)
    for row, (low, high) in zip(rows, ranges, strict=True):
        row.uniform_(low, high, generator=generator)
    return rows
