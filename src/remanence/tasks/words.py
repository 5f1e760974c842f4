"""Tokenisation of texts and encoding as word ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MARKS = re.compile(r"<br\s*/?>")
NOT = re.compile(r"n't\b")
TOKEN = re.compile(
    r"""
      n't\b | '(?:s|re|ve|ll|d|m)\b                              # do n't, it 's, they 're
    | \d+(?:[.,]\d+)+                                            # 1,000 and 7.5
    | [^\W_]+(?:-[^\W_]+ | '(?!(?:s|re|ve|ll|d|m)\b)[^\W_]+)*     # words, well-known, o'brien
    | \.\.\. | --                                                # as in GloVe
    | [^\w\s] | _                                                # any other single character
    """,
    re.VERBOSE,
)

KEPT = 65_000
"""Words with their own id; rarer words all become OTHER. Ids fit into two bytes."""
OTHER = 65_535


def tokenise(text: str) -> list[str]:
    """Split a text into lower-case words, numbers and punctuation, with clitics separated, as in GloVe's corpus.

    It replaces spaCy's tokeniser, which the public code used. It splits at the same whitespace, punctuation and
    clitics, but has no table of abbreviations and keeps hyphenated words whole. It drops HTML line breaks, and
    lower-cases everything because GloVe 6B has no capitals. Reviews are 8 to 2742 words long, with a median of 201
    (training) and 199 (test); the pLSTM paper says 5 to 2789 and 202.
    """
    plain = MARKS.sub(" ", text).replace("’", "'").replace("`", "'").lower()  # noqa: RUF001
    return TOKEN.findall(NOT.sub(" n't", plain))


class Encoded(NamedTuple):
    """Texts as word ranks: 0 is the most frequent word of the training texts."""

    words: list[str]
    """The words by rank, at most `KEPT`."""
    train: NDArray[np.uint16]
    """All training texts, concatenated."""
    train_lengths: NDArray[np.int32]
    """Number of words of every text."""
    test: NDArray[np.uint16]
    test_lengths: NDArray[np.int32]


def encode(train_texts: Sequence[str], test_texts: Sequence[str]) -> Encoded:
    """Rank the words of the training texts by frequency (ties alphabetically) and encode all texts as ranks."""
    numbers: dict[str, int] = {}  # In order of appearance.

    def numbered(texts: Sequence[str], grow: bool) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        lengths = np.empty(len(texts), dtype=np.int32)
        parts = []
        for place, text in enumerate(texts):
            words = tokenise(text)
            if grow:
                found = [numbers.setdefault(word, len(numbers)) for word in words]
            else:
                found = [numbers.get(word, -1) for word in words]
            lengths[place] = len(words)
            parts.append(np.array(found, dtype=np.int32))
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32), lengths

    train, train_lengths = numbered(train_texts, grow=True)
    test, test_lengths = numbered(test_texts, grow=False)
    counts = np.bincount(train, minlength=len(numbers))
    words = sorted(numbers, key=lambda word: (-counts[numbers[word]], word))[:KEPT]
    ranks = np.full(len(numbers) + 1, OTHER, dtype=np.uint16)  # The last entry is for -1, a word not seen in training.
    ranks[[numbers[word] for word in words]] = np.arange(len(words), dtype=np.uint16)
    return Encoded(words, ranks[train], train_lengths, ranks[test], test_lengths)
