"""A split of a corpus on a device, read in chunks or in parallel lanes."""

from __future__ import annotations

from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from .. import language
from ..language import Corpus, Level
from ..language.lanes import in_lanes
from .base import Batch, Split
from .sources import refusal


class Stream:
    """The token ids of a text, shared by all seeds that are trained in parallel."""

    def __init__(self, tokens: Tensor, symbols: int = 0, note: str = "") -> None:
        self.tokens = tokens
        """`(N,)`, int32."""
        self.symbols = symbols
        """Vocabulary size of the corpus it was read or, as a Markov text, generated from."""
        self.note = note
        """What is unusual about that corpus."""


_STREAMS: WeakValueDictionary[tuple[str, str | None, int | None, str, str], Stream] = WeakValueDictionary()
"""Streams that are in use by a source."""


def corpus_of(name: str, level: Level | None, markov: int | None) -> Corpus:
    """Load a corpus, or, with a seed, the Markov text generated from it."""
    return or_markov(language.load(name, level), markov)


def or_markov(corpus: Corpus, seed: int | None) -> Corpus:
    """A corpus, or, with a seed, the Markov text generated from it."""
    return corpus if seed is None else language.markov(corpus, seed)


def stream_of(name: str, level: Level | None, markov: int | None, split: Split, device: torch.device) -> Stream:
    """A split of a corpus, or, with a seed, of the Markov text generated from it. It is not read again while in use."""
    key = (name, level, markov, split, str(device))
    stream = _STREAMS.get(key)
    if stream is None:
        corpus = language.load(name, level)
        read = or_markov(corpus, markov).split(split)
        tokens = torch.from_numpy(np.array(read, np.int32))  # a copy, because torch needs a writable array
        stream = _STREAMS[key] = Stream(tokens.to(device), len(corpus.vocabulary), corpus.note)
    return stream


def in_use(name: str, level: Level | None, markov: int | None) -> Stream | None:
    """A stream of a corpus that is in use, of any split; None if none is. It reads nothing."""
    return next((stream for key, stream in _STREAMS.items() if key[:3] == (name, level, markov)), None)


class Chunks:
    """A stream cut into chunks, which are picked by index.

    Args:
        stream: the text.
        length: steps per chunk.
        size: number of chunks. The last may extend past the end of the text; those steps do not count.
        symbols: number of symbols if inputs are one-hot vectors, else None.
    """

    def __init__(self, stream: Stream, length: int, size: int, symbols: int | None = None) -> None:
        self.stream = stream
        self.length = length
        self.size: int | None = size
        self.symbols = symbols
        self.steps = torch.arange(length + 1, device=stream.tokens.device).unsqueeze(1)
        self.last = len(stream.tokens) - 1
        self.complete = size * length <= self.last

    def pick(self, numbers: Tensor) -> Batch:
        places = numbers * self.length + self.steps  # (T + 1, B)
        counts = None if self.complete else places[1:] <= self.last
        return self._batch(self.stream.tokens[places if self.complete else places.clamp(max=self.last)], counts)

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        raise refusal("pick", "draw")

    def lanes(self, batch: int) -> Tensor:
        """The text of all chunks, split into this many parallel lanes, `(steps, B)`."""
        assert self.size is not None
        tokens = self.stream.tokens[: self.size * self.length + 1]
        if len(tokens) < 2 * batch:
            raise ValueError(f"expected a training text of at least {2 * batch} symbols, got {len(tokens)}")
        return in_lanes(tokens, batch)

    def cut(self, lanes: Tensor, begin: int, end: int) -> Batch:
        """The steps from `begin` to `end` of all lanes; targets are the next symbols."""
        return self._batch(lanes[begin : end + 1])

    def _batch(self, tokens: Tensor, counts: Tensor | None = None) -> Batch:
        tokens = tokens.long()
        inputs = tokens[:-1]
        if self.symbols is not None:
            inputs = one_hot(inputs, self.symbols).float()
        return Batch(inputs, tokens[1:], counts=counts)
