"""Words of a text, and texts as numbers of words."""

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
    | \.\.\. | --                                                # as GloVe has them
    | [^\w\s] | _                                                # any other mark alone
    """,
    re.VERBOSE,
)

KEPT = 65_000
"""Words that keep a number of their own; rarer ones are all OTHER. Two bytes hold it."""
OTHER = 65_535


def tokenise(text: str) -> list[str]:
    """Lower-cased words, numbers and marks of a text, clitics apart, as GloVe's corpus was cut.

    It stands in for spaCy's tokeniser, which the public code used: the same cuts at blanks, punctuation and clitics,
    but no table of abbreviations; hyphenated words stay whole; line-break marks of HTML are dropped; everything is
    lower-cased, since GloVe 6B has no capitals. Reviews come out 8 to 2742 words long, with a median of 201 (training)
    and 199 (test); the pLSTM paper says 5 to 2789 and 202.
    """
    plain = MARKS.sub(" ", text).replace("’", "'").replace("`", "'").lower()  # noqa: RUF001
    return TOKEN.findall(NOT.sub(" n't", plain))


class Encoded(NamedTuple):
    """Texts as ranks of their words: 0 is the word most frequent in the training texts."""

    words: list[str]
    """The word of every rank, at most `KEPT`."""
    train: NDArray[np.uint16]
    """All training texts one after the other."""
    train_lengths: NDArray[np.int32]
    """Words of every text."""
    test: NDArray[np.uint16]
    test_lengths: NDArray[np.int32]


def encode(train_texts: Sequence[str], test_texts: Sequence[str]) -> Encoded:
    """Number the words of the training texts by frequency (equals by alphabet) and write all texts in these numbers."""
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
    ranks = np.full(len(numbers) + 1, OTHER, dtype=np.uint16)  # The last one is for -1, a word not seen in training.
    ranks[[numbers[word] for word in words]] = np.arange(len(words), dtype=np.uint16)
    return Encoded(words, ranks[train], train_lengths, ranks[test], test_lengths)
