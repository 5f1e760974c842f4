"""A control text with the bigram statistics of a corpus and no longer dependencies.

Multi-timescale paper, Fig. 1. The paper leaves the details open. Here bigrams are counted in the training text only,
without smoothing; the chain starts as if after a line end; and each split is drawn with its own length. Every bigram of
the result therefore occurs in the training text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .corpus import SPLITS, Corpus

PIECE = 1 << 20
"""Tokens drawn at once."""


def markov(corpus: Corpus, seed: int = 1) -> Corpus:
    """Generate a first-order Markov text from a corpus, with the same lengths and vocabulary.

    A token that occurs only at the end of the training text is followed by the successors of a line end. A text without
    line ends starts as if after its first token.

    Args:
        corpus: the corpus whose training text is counted.
        seed: seed of the generated text.
    """
    chain = Chain(corpus.train, corpus.vocabulary.end)
    # One generator per split, so that its text does not depend on the lengths of the others.
    train, validation, test = (
        chain.draw(len(corpus.split(split)), [seed, number]) for number, split in enumerate(SPLITS)
    )
    note = f"first-order Markov text of {corpus.name}, seed {seed}" + (f" ({corpus.note})" if corpus.note else "")
    return Corpus(f"{corpus.name}-markov", corpus.vocabulary, train, validation, test, note)


class Chain:
    """The successors of every token; a uniform draw from them follows the bigram counts.

    Args:
        tokens: token ids, `(N,)`.
        start: the token before the first one; None for the first token of the text.
    """

    def __init__(self, tokens: NDArray[np.int32], start: int | None):
        if len(tokens) < 2:
            raise ValueError(f"expected a training text of at least 2 tokens, got {len(tokens)}")
        order = np.argsort(tokens[:-1], kind="stable")
        size = int(tokens.max()) + 1
        counts = np.bincount(tokens[:-1], minlength=size)
        # Each step depends on the previous one; plain lists are the fastest for element access.
        self.followers: list[int] = tokens[1:][order].tolist()
        """The successors of token 0 first, then those of token 1, and so on."""
        self.counts: list[int] = counts.tolist()
        self.begins: list[int] = (np.cumsum(counts) - counts).tolist()
        self.start = int(tokens[0]) if start is None or start >= size or not self.counts[start] else start
        last = int(tokens[-1])
        if not self.counts[last]:
            self.counts[last], self.begins[last] = self.counts[self.start], self.begins[self.start]

    def draw(self, length: int, seed: list[int]) -> NDArray[np.int32]:
        """Draw a text, `(length,)`."""
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
