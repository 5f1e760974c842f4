"""A control text: the same pairs of neighbouring words as a corpus, and nothing beyond them.

Multi-timescale paper, Fig. 1. The paper leaves the details open. Here: pairs are counted in the training text alone
and not smoothed, the chain starts as if after a line end, and all three parts are drawn at their own lengths. So no
pair can come that the training text does not have.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .corpus import SPLITS, Corpus

PIECE = 1 << 20
"""Steps drawn at once."""


def markov(corpus: Corpus, seed: int = 1) -> Corpus:
    """A first-order Markov text like a corpus, of the same lengths and with the same vocabulary.

    A token that only ends the training text is followed by what follows a line end. A text without line ends starts
    as after its first token.

    Args:
        corpus: whose training text is counted.
        seed: another seed, another text.
    """
    chain = Chain(corpus.train, corpus.vocabulary.end)
    # A generator for each part: the same text however long the others are.
    train, validation, test = (
        chain.draw(len(corpus.split(split)), [seed, number]) for number, split in enumerate(SPLITS)
    )
    note = f"first-order Markov text of {corpus.name}, seed {seed}" + (f" ({corpus.note})" if corpus.note else "")
    return Corpus(f"{corpus.name}-markov", corpus.vocabulary, train, validation, test, note)


class Chain:
    """The followers of every token: to draw one of them evenly is to draw by the count of the pair.

    Args:
        tokens: `(N,)`.
        start: the token before the first one; None for the first token of the text.
    """

    def __init__(self, tokens: NDArray[np.int32], start: int | None):
        if len(tokens) < 2:
            raise ValueError(f"expected a training text of at least 2 tokens, got {len(tokens)}")
        order = np.argsort(tokens[:-1], kind="stable")
        size = int(tokens.max()) + 1
        counts = np.bincount(tokens[:-1], minlength=size)
        # Each step needs the one before it: plain lists are the quickest to go through one by one.
        self.followers: list[int] = tokens[1:][order].tolist()
        """Those of token 0 first, then those of token 1, and so on."""
        self.counts: list[int] = counts.tolist()
        self.begins: list[int] = (np.cumsum(counts) - counts).tolist()
        self.start = int(tokens[0]) if start is None or start >= size or not self.counts[start] else start
        last = int(tokens[-1])
        if not self.counts[last]:
            self.counts[last], self.begins[last] = self.counts[self.start], self.begins[self.start]

    def draw(self, length: int, seed: list[int]) -> NDArray[np.int32]:
        """A text, `(length,)`."""
        generator = np.random.default_rng(seed)
        followers, counts, begins = self.followers, self.counts, self.begins
        token = self.start
        pieces = [np.empty(0, np.int32)]
        for done in range(0, length, PIECE):
            drawn = []
            for chance in generator.random(min(PIECE, length - done)).tolist():
                token = followers[begins[token] + int(chance * counts[token])]
                drawn.append(token)
            pieces.append(np.array(drawn, np.int32))
        return np.concatenate(pieces)
