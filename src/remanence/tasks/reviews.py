"""Reviews on a device: stored as word ids, embedded as word vectors when they are picked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from .base import Batch
from .generators import generator
from .sources import refusal
from .words import Encoded

if TYPE_CHECKING:
    from ..data import WordVectors

DIMENSIONS = 100
PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
"""Word ids: the word of rank r has id r + 2."""
BIN, BINS = 50, 9
"""Length bins, in words before truncation: 1-50, 51-100, ..., 351-400, above 400 (Fig. 4; the edges are our choice)."""


class NumberedReviews:
    """All reviews on a device, shared by all splits and by all seeds that are trained in parallel."""

    def __init__(
        self,
        encoded: Encoded,
        labels: Mapping[str, NDArray[np.uint8]],
        vectors: Tensor,
        vocabulary: int,
        length: int,
        device: torch.device,
    ) -> None:
        known = min(vocabulary, len(encoded.words))
        self.vectors = vectors.to(device)  # (words, 100)
        self.words, self.lengths, self.bins, self.labels = {}, {}, {}, {}
        for part, ranks, lengths in (
            ("train", encoded.train, encoded.train_lengths),
            ("test", encoded.test, encoded.test_lengths),
        ):
            numbers = np.where(ranks < known, ranks.astype(np.int32) + FIRST_WORD, UNKNOWN)
            self.words[part] = torch.from_numpy(padded(numbers, lengths, length)).to(device)  # (N, T)
            whole = torch.from_numpy(lengths).long().to(device)
            self.lengths[part] = whole.clamp(1, length)  # An empty review is one step of padding.
            self.bins[part] = ((whole - 1) // BIN).clamp(0, BINS - 1)
            self.labels[part] = torch.from_numpy(np.asarray(labels[part])).long().to(device)


class Part:
    """A subset of the reviews, as a source."""

    def __init__(self, reviews: NumberedReviews, part: str, chosen: Tensor, device: torch.device) -> None:
        self.reviews = reviews
        self.part = part
        self.chosen = chosen.to(device)
        self.size: int | None = len(chosen)

    def pick(self, numbers: Tensor) -> Batch:
        part, reviews = self.part, self.reviews
        which = self.chosen.index_select(0, numbers)
        words = reviews.words[part].index_select(0, which)
        return Batch(
            functional.embedding(words.t().contiguous(), reviews.vectors),
            reviews.labels[part].index_select(0, which),
            lengths=reviews.lengths[part].index_select(0, which),
            groups=reviews.bins[part].index_select(0, which),
        )

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        raise refusal("pick", "draw")


def padded(numbers: NDArray[np.int32], lengths: NDArray[np.int32], steps: int) -> NDArray[np.int32]:
    """Concatenated texts as rows of equal length, truncated or padded at the end: `(N, steps)`."""
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    step = np.arange(steps)
    present = step < lengths[:, None]
    where = np.where(present, starts[:, None] + step, 0)
    return np.where(present, numbers[where] if len(numbers) else PADDING, PADDING).astype(np.int32)


def word_vectors(words: Sequence[str], known: WordVectors) -> Tensor:
    """Word vectors of padding, of the unknown word, and of these words, float32 `(2 + words, 100)`."""
    places = {word: place for place, word in enumerate(known.words)}
    found = np.array([places.get(word, -1) for word in words], dtype=np.int64)
    # Drawn for all words, so that a word's random vector does not depend on which other words lack one.
    drawn = torch.randn(len(words), DIMENSIONS, generator=generator(0, "imdb words without a vector"))
    vectors = torch.zeros(FIRST_WORD + len(words), DIMENSIONS)
    vectors[FIRST_WORD:] = drawn
    has = np.flatnonzero(found >= 0)
    vectors[torch.from_numpy(has) + FIRST_WORD] = torch.from_numpy(np.asarray(known.vectors)[found[has]])
    return vectors
