"""Dyck-2: which bracket may be closed now?

"Multi-timescale Representation Learning in LSTM Language Models" (ICLR 2021), Fig. 2, after Suzgun et al. 2019.

* From the paper and its public code: the grammar (see `brackets.draw`), strings of 2 to 200 symbols, all different,
  10,000 / 2000 / 5000 of them, one-hot inputs, two sigmoid outputs with squared errors, a string is right if every
  thresholded output is, at every step; timescales of pairs, and nine bins of the longest one of a string.
* Ours: which strings there are, of course; and that loss and scores of a split are means over all of it, while the
  public code takes the mean of the losses of batches.
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
"""Equal bins of the longest timescale of a string, from 2 to the length of the longest string."""
LEAST_LONGEST = 2 + 2 * BINS
"""Timescales are even numbers: with shorter strings a bin would be empty."""
MOST = 100_000
"""Strings of all splits together: seconds, also where they are short and most of them come up again and again."""


@dataclass(frozen=True, kw_only=True)
class Dyck2(Task):
    """Strings of round and square brackets; targets are two bits a step: may a round, may a square bracket be closed?

    Strings are padded to the longest there can be. The same ones come for every seed: a seed decides the weights a
    model starts with and the order in which it sees them.
    """

    name: ClassVar[str] = "dyck2"
    readout: ClassVar[Readout] = "every"
    goal: ClassVar[str] = "accuracy"

    longest: int = 200
    """Symbols of the longest string; an even number."""
    train_size: int = 10_000
    validation_size: int = 2000
    test_size: int = 5000
    """0 for no test split."""
    data_seed: int = 0
    """Which strings there are and how they are split; not the seed of a run."""

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
        """The strings of a split, `(T, N)` symbols; N is 0 where there is no such split."""
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
        """Whether a string is right at every step, `(R, B)`."""
        assert batch.counts is not None
        return (right_steps(outputs, batch) | ~batch.counts).all(1)

    @property
    def references(self) -> dict[str, float]:
        """Of a model whose answer is always the same: a string begins with something open and ends with nothing."""
        return {"accuracy": 0.0}

    def bin_name(self, number: int) -> str:
        """The score of one bin by its smallest and largest timescale, such as "accuracy_24_44"."""
        timescales = np.arange(2, self.longest + 1, 2)
        inside = timescales[bin_of(timescales, self.longest) == number]
        return f"accuracy_{inside[0]}_{inside[-1]}"

    def _errors(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Squared errors, the mean over the two outputs: `(R, T, B)`."""
        probabilities = outputs.to(wide(outputs.dtype)).sigmoid()
        return (probabilities - batch.targets).square().mean(-1)


def right_steps(outputs: Tensor, batch: Batch) -> Tensor:
    """Whether both bits are right, `(R, T, B)`. The threshold is a half, the sigmoid of zero."""
    return ((outputs > 0) == (batch.targets > 0.5)).all(-1)


def bin_of(timescales: NDArray[np.integer], longest: int, bins: int = BINS) -> NDArray[np.int64]:
    """The bin of every timescale. Bins begin with their left edge; the last one ends with its right edge, too."""
    return np.minimum((timescales.astype(np.int64) - 2) * bins // (longest - 2), bins - 1)


def source_of(strings: Strings, device: torch.device) -> FixedSet:
    """Some strings on a device: a byte a symbol, made into inputs and targets when they are picked."""
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
    """All strings in random order; a second's work, done once for all runs and splits."""
    rng = np.random.default_rng(seed)
    found = brackets.draw(count, longest, rng)
    return brackets.padded([found[place] for place in rng.permutation(count)], longest)
