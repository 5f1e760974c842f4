"""The next symbol of a text, read as one long stream in chunks.

Sequences are numbered along the stream, so that stateful training (`training.stateful`) reads it in lanes: each of the
B sequences of a batch goes on where it ended in the batch before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ..nn.expect import expect_size
from . import metrics
from .base import Batch, Readout, Score, Source, Split
from .classification import Classification
from .expect import expect_flag, expect_one_of, expect_size_or_none
from .sources import refusal

if TYPE_CHECKING:
    from ..language import Corpus, Level

SYMBOLS = {"ptb-char": 50, "text8": 27, "text8-from-enwik8": 27}
"""Symbols of corpora that are known without looking."""


@dataclass(frozen=True, kw_only=True)
class Text(Classification):
    """Predict every symbol from those before it; bits per symbol is what is reported.

    The pLSTM paper reads Penn Treebank characters in chunks of 150 or 500 and text8 in chunks of 500.
    """

    name: ClassVar[str] = "text"
    readout: ClassVar[Readout] = "every"
    goal: ClassVar[str] = "bits"
    higher_is_better: ClassVar[bool] = False

    corpus: str = "ptb-char"
    """A name of `remanence.language.KNOWN`, or the path of a folder of text files."""
    level: Literal["word", "character"] | None = None
    """Whether symbols are words or characters; None for what the corpus is by its name, and for words of a folder."""
    chunk: int = 150
    """Symbols of a sequence."""
    one_hot: bool = False
    """Whether inputs are one-hot vectors instead of numbers for a model that embeds them."""
    train_size: int | None = None
    """Only the first so many chunks of the training text; None for all."""
    validation_size: int | None = None
    test_size: int | None = None

    def __post_init__(self) -> None:
        expect_size("chunk", self.chunk)
        expect_flag("one_hot", self.one_hot)
        if self.level is not None:
            expect_one_of("level", self.level, ("word", "character"))
        for name in ("train_size", "validation_size", "test_size"):
            expect_size_or_none(name, getattr(self, name))

    @property
    def symbols(self) -> int:
        """How many symbols the corpus has."""
        known = SYMBOLS.get(self.corpus) if self.level in (None, "character") else None
        return known if known is not None else len(_load(self.corpus, self.level).vocabulary)

    @property
    def input_size(self) -> int:
        return self.symbols

    @property
    def output_size(self) -> int:
        return self.symbols

    def source(self, split: Split, seed: int, device: torch.device) -> Source:
        stream = _stream(self.corpus, self.level, split, device)
        there = (len(stream.tokens) - 1) // self.chunk
        wanted = {"train": self.train_size, "validation": self.validation_size, "test": self.test_size}[split]
        if there < 1:
            came = f"{len(stream.tokens)} in {self.corpus!r}"
            raise ValueError(f"expected a {split} text of more than {self.chunk} symbols, got {came}")
        return Chunks(stream, self.chunk, min(wanted or there, there), self.symbols if self.one_hot else None)

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        losses = metrics.cross_entropy(outputs, batch.targets)
        return {
            "loss": metrics.score(losses),
            "bits": metrics.score(losses / math.log(2)),
            "accuracy": metrics.score(metrics.right(outputs, batch.targets)),
        }

    @property
    def references(self) -> dict[str, float]:
        """Of a model that takes all symbols for equally likely."""
        return {"loss": math.log(self.symbols), "bits": math.log2(self.symbols)}


class Stream:
    """A split of a corpus on a device, shared by all seeds that are trained together."""

    def __init__(self, tokens: Tensor) -> None:
        self.tokens = tokens
        """`(N,)`, int32."""


_STREAMS: WeakValueDictionary[tuple[str, str | None, str, str], Stream] = WeakValueDictionary()
"""As long as a source of them is in use."""


def _load(corpus: str, level: Level | None) -> Corpus:
    from ..language import load

    return load(corpus, level)


def _stream(corpus: str, level: Level | None, split: Split, device: torch.device) -> Stream:
    key = (corpus, level, split, str(device))
    stream = _STREAMS.get(key)
    if stream is None:
        tokens = np.array(_load(corpus, level).split(split), np.int32)  # a copy: torch does not take what is read only
        stream = _STREAMS[key] = Stream(torch.from_numpy(tokens).to(device))
    return stream


class Chunks:
    """A stream in chunks, by number."""

    def __init__(self, stream: Stream, length: int, size: int, symbols: int | None) -> None:
        self.stream = stream
        self.length = length
        self.size: int | None = size
        self.symbols = symbols
        self.steps = torch.arange(length + 1, device=stream.tokens.device).unsqueeze(1)

    def pick(self, numbers: Tensor) -> Batch:
        tokens = self.stream.tokens[numbers * self.length + self.steps].long()  # (T + 1, B)
        inputs = tokens[:-1]
        if self.symbols is not None:
            inputs = one_hot(inputs, self.symbols).float()
        return Batch(inputs, tokens[1:])

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        raise refusal("pick", "draw")
