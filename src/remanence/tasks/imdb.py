"""IMDB sentiment classification: is a film review positive? Words are GloVe vectors; read after the last word.

Maas et al. 2011; pLSTM paper sec. 4.4 and Fig. 4.

** From the paper: 25,000 training reviews, a random tenth of them for validation, 25,000 test reviews, at most 400
  words, the 25,000 most frequent words, 100-dimensional word vectors that are not trained.
* From the public code of related work (coRNN): GloVe 6B, zero vectors for unknown words and padding, vectors from
  N(0, 1) for known words without one, a single logit with binary cross-entropy.
** Our choices: the tokeniser (see `words.tokenise`; theirs was spaCy's), truncating long reviews at the end, padding at
  the end with a read-out at the last word, counting words over all training reviews, and choosing the validation
  reviews by the seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.nn import functional

from ..cells import wide
from ..nn.expect import expect_size
from . import metrics
from .base import Batch, Readout, Score, Source, Split, Task
from .encoded import encoded_once
from .expect import expect_size_or_none
from .generators import generator
from .reviews import BIN, BINS, DIMENSIONS, NumberedReviews, Part, word_vectors
from .words import KEPT


def bin_name(number: int) -> str:
    """Name of the score of one length bin, such as "accuracy_51_100"."""
    if number == BINS - 1:
        return f"accuracy_over_{number * BIN}"
    return f"accuracy_{number * BIN + 1}_{(number + 1) * BIN}"


@dataclass(frozen=True, kw_only=True)
class IMDB(Task):
    """Reviews as fixed word vectors; targets are 1 (positive) and 0 (negative)."""

    name: ClassVar[str] = "imdb"
    readout: ClassVar[Readout] = "last"
    goal: ClassVar[str] = "accuracy"

    length: int = 400
    """Words to read; longer reviews are truncated at the end."""
    vocabulary: int = 25_000
    """Vocabulary size: the most frequent words of the training reviews."""
    train_size: int | None = None
    """Use only this many training reviews, chosen at random; None for all."""
    validation_size: int = 2500
    """Reviews held out from the training set, chosen at random."""
    test_size: int | None = None
    """Use only this many test reviews, chosen at random; None for all."""

    def __post_init__(self) -> None:
        expect_size("length", self.length)
        expect_size("vocabulary", self.vocabulary)
        if self.vocabulary > KEPT:
            raise ValueError(f"expected vocabulary to be at most {KEPT}, got {self.vocabulary}")
        expect_size_or_none("train_size", self.train_size)
        expect_size("validation_size", self.validation_size)
        expect_size_or_none("test_size", self.test_size)

    @property
    def input_size(self) -> int:
        return DIMENSIONS

    @property
    def output_size(self) -> int:
        return 1

    def source(self, split: Split, seed: int, device: torch.device) -> Source:
        reviews = self._reviews(device)
        if split == "test":
            count = len(reviews.labels["test"])
            size = expect_at_most("test_size", self.test_size, count)
            # The files are sorted by label, so a subset must be a random one.
            chosen = torch.arange(count) if size == count else shuffled(count, seed, "imdb test")[:size]
            return Part(reviews, "test", chosen, device)
        count = len(reviews.labels["train"])
        held = expect_at_most("validation_size", self.validation_size, count - 1)
        order = shuffled(count, seed, "imdb validation")
        if split == "validation":
            return Part(reviews, "train", order[:held], device)
        size = expect_at_most("train_size", self.train_size, count - held)
        return Part(reviews, "train", order[held : held + size], device)

    def _reviews(self, device: torch.device) -> NumberedReviews:
        key = (self.vocabulary, self.length, str(device))
        reviews = _LOADED.get(key)
        if reviews is None:
            from .. import data

            texts = data.imdb()
            encoded = encoded_once(texts.train_texts, texts.test_texts)
            vectors = word_vectors(encoded.words[: self.vocabulary], data.glove())
            labels = {"train": texts.train_labels, "test": texts.test_labels}
            reviews = NumberedReviews(encoded, labels, vectors, self.vocabulary, self.length, device)
            _LOADED[key] = reviews
        return reviews

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return metrics.mean(self._entropy(outputs, batch))

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        assert batch.groups is not None
        right = (outputs.squeeze(-1) > 0) == (batch.targets == 1)  # (R, B)
        scores = {"loss": metrics.score(self._entropy(outputs, batch)), "accuracy": metrics.score(right)}
        for number in range(BINS):
            scores[bin_name(number)] = metrics.score(right, batch.groups == number)
        return scores

    @property
    def references(self) -> dict[str, float]:
        """Scores of a random guess: half of the reviews are positive."""
        return {"loss": math.log(2), "accuracy": 0.5}

    def _entropy(self, outputs: Tensor, batch: Batch) -> Tensor:
        logits = outputs.squeeze(-1).to(wide(outputs.dtype))
        targets = batch.targets.to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")


def shuffled(count: int, seed: int, purpose: str) -> Tensor:
    """A random permutation, the same on every device."""
    return torch.randperm(count, generator=generator(seed, purpose))


def expect_at_most(name: str, value: int | None, most: int) -> int:
    """The value, or the maximum if it is None."""
    if value is not None and value > most:
        raise ValueError(f"expected {name} to be at most {most}, got {value}")
    return most if value is None else value


_LOADED: WeakValueDictionary[tuple[int, int, str], NumberedReviews] = WeakValueDictionary()
"""Reviews that are in use by a source."""
