"""Character- or word-level language modelling: predict the next symbol of a text, read in chunks of one long stream.

Chunks are numbered along the stream, so that stateful training (`training.stateful`) can read it in lanes: each of the
B sequences of a batch continues where it ended in the previous batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from .. import language
from ..nn.expect import expect_size
from . import metrics
from .base import Batch, Readout, Score, Source, Split
from .classification import Classification
from .expect import expect_flag, expect_one_of, expect_size_or_none
from .streams import Chunks, in_use, stream_of

SYMBOLS = {"ptb-char": 50, "text8": 27, "text8-from-enwik8": 27, "ptb": 10_000, "wikitext-2": 33_278}
"""Vocabulary sizes that are known without reading the corpus."""


@dataclass(frozen=True, kw_only=True)
class Text(Classification):
    """Predict every symbol from the previous ones; the goal is bits per symbol.

    The pLSTM paper reads Penn Treebank characters in chunks of 150 or 500 and text8 in chunks of 500.
    """

    name: ClassVar[str] = "text"
    readout: ClassVar[Readout] = "every"
    goal: ClassVar[str] = "bits"
    higher_is_better: ClassVar[bool] = False

    corpus: str = "ptb-char"
    """A name from `remanence.language.KNOWN`, or the path of a folder of text files."""
    level: Literal["word", "character"] | None = None
    """Whether symbols are words or characters; None for the usual level of a named corpus, or words for a folder."""
    markov: int | None = None
    """A seed to read the Markov text generated from the corpus instead, see `remanence.language.markov`."""
    chunk: int = 150
    """Symbols per sequence."""
    one_hot: bool = False
    """Whether inputs are one-hot vectors, rather than ids for a model with an embedding."""
    train_size: int | None = None
    """Use only this many chunks from the start of the training text; None for all."""
    validation_size: int | None = None
    """Number of validation chunks to use, from the first; None for all."""
    test_size: int | None = None
    """Number of test chunks to use, from the first; None for all."""

    def __post_init__(self) -> None:
        expect_size("chunk", self.chunk)
        expect_flag("one_hot", self.one_hot)
        if self.level is not None:
            expect_one_of("level", self.level, ("word", "character"))
        expect_size_or_none("markov", self.markov)
        for name in ("train_size", "validation_size", "test_size"):
            expect_size_or_none(name, getattr(self, name))

    @property
    def symbols(self) -> int:
        """Vocabulary size of the corpus, which is read only if it is not a known one and not in use."""
        known = SYMBOLS.get(self.corpus) if self.level in (None, self.usual_level) else None
        if known is not None:
            return known
        stream = in_use(self.corpus, self.level, self.markov)
        return len(language.load(self.corpus, self.level).vocabulary) if stream is None else stream.symbols

    @property
    def usual_level(self) -> str:
        """The level of a named corpus, known without reading it."""
        return "word" if self.corpus in ("ptb", "wikitext-2") else "character"

    @property
    def input_size(self) -> int:
        return self.symbols

    @property
    def output_size(self) -> int:
        return self.symbols

    def source(self, split: Split, seed: int, device: torch.device) -> Source:
        stream = stream_of(self.corpus, self.level, self.markov, split, device)
        there, left = divmod(len(stream.tokens) - 1, self.chunk)
        if split != "train" and left and there:
            there += 1  # score the whole text, including the last incomplete chunk
        wanted = {"train": self.train_size, "validation": self.validation_size, "test": self.test_size}[split]
        if there < 1:
            got = f"{len(stream.tokens)} in {self.corpus!r}"
            raise ValueError(f"expected a {split} text of more than {self.chunk} symbols, got {got}")
        return Chunks(stream, self.chunk, min(wanted or there, there), self.symbols if self.one_hot else None)

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        losses = metrics.cross_entropy(outputs, batch.targets)
        return {
            "loss": metrics.score(losses, batch.counts),
            "bits": metrics.score(losses / math.log(2), batch.counts),
            "accuracy": metrics.score(metrics.right(outputs, batch.targets), batch.counts),
        }

    def by_sequence(self, outputs: Tensor, batch: Batch) -> Score:
        return metrics.score_by_sequence(metrics.cross_entropy(outputs, batch.targets), batch.counts)

    @property
    def references(self) -> dict[str, float]:
        """Scores of a uniform prediction over all symbols."""
        return {"loss": math.log(self.symbols), "bits": math.log2(self.symbols)}

    @property
    def note(self) -> str:
        """The note of the corpus, while it is in use; that a Markov text was made from it is a setting of the task."""
        stream = in_use(self.corpus, self.level, self.markov)
        return "" if stream is None else stream.note
