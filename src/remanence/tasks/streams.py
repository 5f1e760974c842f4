"""A split of a corpus on a device, read in chunks."""

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
    """The numbers of a text, shared by all seeds that are trained together."""

    def __init__(self, tokens: Tensor) -> None:
        self.tokens = tokens
        """`(N,)`, int32."""


_STREAMS: WeakValueDictionary[tuple[str, str | None, int | None, str, str], Stream] = WeakValueDictionary()
"""As long as a source of them is in use."""


def corpus_of(name: str, level: Level | None, markov: int | None) -> Corpus:
    """A corpus, or with a seed the Markov text made from it."""
    corpus = language.load(name, level)
    return corpus if markov is None else language.markov(corpus, markov)


def stream_of(name: str, level: Level | None, markov: int | None, split: Split, device: torch.device) -> Stream:
    """A split of a corpus; nothing is read twice while somebody holds it."""
    key = (name, level, markov, split, str(device))
    stream = _STREAMS.get(key)
    if stream is None:
        tokens = np.array(corpus_of(name, level, markov).split(split), np.int32)  # a copy: torch wants to write
        stream = _STREAMS[key] = Stream(torch.from_numpy(tokens).to(device))
    return stream


class Chunks:
    """A stream in chunks, by number.

    Args:
        stream: the text.
        length: steps of a chunk.
        size: number of chunks. The last may reach beyond the end of the text: what is there does not count.
        symbols: how many there are, where inputs are one-hot vectors.
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
        """The text of all chunks in so many lanes that run side by side, `(steps, B)`."""
        assert self.size is not None
        tokens = self.stream.tokens[: self.size * self.length + 1]
        if len(tokens) < 2 * batch:
            raise ValueError(f"expected a training text of at least {2 * batch} symbols, got {len(tokens)}")
        return in_lanes(tokens, batch)

    def cut(self, lanes: Tensor, begin: int, end: int) -> Batch:
        """Steps of all lanes, each with what comes next."""
        return self._batch(lanes[begin : end + 1])

    def _batch(self, tokens: Tensor, counts: Tensor | None = None) -> Batch:
        tokens = tokens.long()
        inputs = tokens[:-1]
        if self.symbols is not None:
            inputs = one_hot(inputs, self.symbols).float()
        return Batch(inputs, tokens[1:], counts=counts)
