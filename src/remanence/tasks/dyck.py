"""The Dyck-2 task: predict which bracket may be closed next.

"Multi-timescale Representation Learning in LSTM Language Models" (ICLR 2021), Fig. 2, after Suzgun et al. 2019.

** From the paper and its public code: the grammar (see `brackets.draw`); 10,000 / 2000 / 5000 distinct strings of 2 to
  200 symbols; one-hot inputs; two sigmoid outputs with squared errors; a string is correct if every thresholded output
  is correct at every step; timescales of pairs, and nine bins of the longest timescale of a string.
* Our choices: the strings themselves; and loss and scores are means over a whole split, while the public code averages
  the losses of batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..cells import wide
from ..nn.expect import expect_size
from . import brackets, metrics
from .base import Batch, Readout, Score, Source, Split, Task
from .brackets import KINDS, PADDING, SYMBOLS, Strings
from .expect import expect_whole
from .sources import FixedSet, Parts

BINS = 9
"""Equal-width bins of the longest timescale of a string, from 2 to the length of the longest string."""
LEAST_LONGEST = 2 + 2 * BINS
"""Least value of `longest`: timescales are even, so with shorter strings a bin would be empty."""
MOST = 100_000
"""Most strings in all splits together; drawing them takes seconds, even if they are short and most are duplicates."""


@dataclass(frozen=True, kw_only=True)
class Dyck2(Task):
    """Strings of round and square brackets; targets are two bits per step: may a round or square bracket be closed?

    Strings are padded to the longest possible length. They are the same for every seed: a seed sets the initial
    weights of a model and the order of the strings.
    """

    name: ClassVar[str] = "dyck2"
    readout: ClassVar[Readout] = "every"
    goal: ClassVar[str] = "accuracy"

    longest: int = 200
    """Length of the longest string; an even number."""
    train_size: int = 10_000
    """Training strings."""
    validation_size: int = 2000
    """Validation strings."""
    test_size: int = 5000
    """0 for no test split."""
    data_seed: int = 0
    """Seed of the strings and of their split; not the seed of a run."""

    def __post_init__(self) -> None:
        expect_whole("longest", self.longest, LEAST_LONGEST)
        if self.longest % 2:
            raise ValueError(f"expected longest to be an even number, got {self.longest}")
        expect_size("train_size", self.train_size)
        expect_size("validation_size", self.validation_size)
        expect_whole("test_size", self.test_size)
        expect_whole("data_seed", self.data_seed)
        others = self.validation_size + self.test_size
        if self.train_size + others > MOST:
            raise ValueError(
                f"expected train_size to be at most {MOST - others}, {MOST} with the other splits, "
                f"got {self.train_size}"
            )

    @property
    def input_size(self) -> int:
        return len(SYMBOLS)

    @property
    def output_size(self) -> int:
        return KINDS

    def strings(self, split: Split) -> Strings:
        """The strings of a split, `(T, N)` symbols; N is 0 if there is no such split."""
        everything = drawn(self.longest, self.train_size + self.validation_size + self.test_size, self.data_seed)
        first = {"train": 0, "validation": self.train_size, "test": self.train_size + self.validation_size}[split]
        size = {"train": self.train_size, "validation": self.validation_size, "test": self.test_size}[split]
        return everything[:, first : first + size]

    def source(self, split: Split, seed: int, device: torch.device) -> Source | None:
        strings = self.strings(split)
        return source_of(strings, device) if strings.shape[1] else None

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return metrics.mean(self._errors(outputs, batch), batch.counts)

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        assert batch.counts is not None
        assert batch.groups is not None
        whole = self.right(outputs, batch)
        scores = {
            "loss": metrics.score(self._errors(outputs, batch), batch.counts),
            "accuracy": metrics.score(whole),
            "step_accuracy": metrics.score(right_steps(outputs, batch), batch.counts),
        }
        for number in range(BINS):
            scores[self.bin_name(number)] = metrics.score(whole, batch.groups == number)
        return scores

    def right(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Whether a string is correct at every step, `(R, B)`."""
        assert batch.counts is not None
        return (right_steps(outputs, batch) | ~batch.counts).all(1)

    @property
    def references(self) -> dict[str, float]:
        """Accuracy of a constant output: 0, because every string starts with an open bracket and ends with none."""
        return {"accuracy": 0.0}

    def bin_name(self, number: int) -> str:
        """Name of the score of one bin, with its smallest and largest timescale, such as "accuracy_24_44"."""
        timescales = np.arange(2, self.longest + 1, 2)
        inside = timescales[bin_of(timescales, self.longest) == number]
        return f"accuracy_{inside[0]}_{inside[-1]}"

    def _errors(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Squared errors, averaged over the two outputs: `(R, T, B)`."""
        probabilities = outputs.to(wide(outputs.dtype)).sigmoid()
        return (probabilities - batch.targets).square().mean(-1)


def right_steps(outputs: Tensor, batch: Batch) -> Tensor:
    """Whether both bits are correct, `(R, T, B)`. The threshold is 1/2, the sigmoid of zero."""
    return ((outputs > 0) == (batch.targets > 0.5)).all(-1)


def bin_of(timescales: NDArray[np.integer], longest: int, bins: int = BINS) -> NDArray[np.int64]:
    """The bin of every timescale. Bins include their left edge; the last one also includes its right edge."""
    return np.minimum((timescales.astype(np.int64) - 2) * bins // (longest - 2), bins - 1)


def source_of(strings: Strings, device: torch.device) -> FixedSet:
    """Strings on a device, one byte per symbol; inputs and targets are made when strings are picked."""
    reading = brackets.read(strings)
    bins = bin_of(reading.timescales.max(0), len(strings))
    parts = (np.array(strings, order="C"), reading.open, (strings != PADDING).sum(0), bins)
    return FixedSet(show, tuple(torch.from_numpy(part).to(device) for part in parts))


def show(parts: Parts) -> Batch:
    """Inputs and targets of strings, from symbols and open brackets `(..., T, B)`, lengths and bins `(..., B)`."""
    symbols, open_ones, lengths, bins = parts
    known = torch.arange(len(SYMBOLS), dtype=symbols.dtype, device=symbols.device)
    kinds = torch.arange(1, KINDS + 1, dtype=open_ones.dtype, device=open_ones.device)
    return Batch(
        (symbols.unsqueeze(-1) == known).float(),  # padding is all zero
        (open_ones.unsqueeze(-1) == kinds).float(),
        lengths=lengths,
        counts=symbols != PADDING,
        groups=bins,
    )


@lru_cache(maxsize=4)
def drawn(longest: int, count: int, seed: int) -> Strings:
    """All strings in random order. Takes about a second, once for all runs and splits."""
    rng = np.random.default_rng(seed)
    found = brackets.draw(count, longest, rng)
    return brackets.padded([found[place] for place in rng.permutation(count)], longest)
