"""A text in three splits, as token ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..names import lookup
from .vocabulary import Vocabulary

SPLITS = ("train", "validation", "test")
PIECE = 1 << 22
"""Tokens counted at once, because `bincount` copies its input to a wider dtype."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Three streams of token ids and their vocabulary. The arrays may be memory-mapped files and are read-only."""

    name: str
    """Name of the corpus."""
    vocabulary: Vocabulary
    """Meaning of the token ids."""
    train: NDArray[np.int32]
    """`(N,)`, like the other two."""
    validation: NDArray[np.int32]
    """Validation stream."""
    test: NDArray[np.int32]
    """Test stream."""
    note: str = ""
    """How it differs from the standard corpus of that name, to be stated with results."""
    _counts: dict[str, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(self.split(name)):,}" for name in SPLITS)
        return f"Corpus({self.name!r}, {len(self.vocabulary):,} {self.vocabulary.level}s, {sizes} tokens)"

    def split(self, name: str) -> NDArray[np.int32]:
        """The stream of "train", "validation" or "test"."""
        return lookup("split", name, {"train": self.train, "validation": self.validation, "test": self.test})

    def counts(self, where: Literal["train", "validation", "test", "all"] = "train") -> NDArray[np.int64]:
        """How often every symbol occurs, `(V,)`.

        Args:
            where: a split, or "all" for all three (as the public code of the multi-timescale paper counts).
        """
        names = SPLITS if where == "all" else (where,)
        if where not in self._counts:
            found = np.zeros(len(self.vocabulary), np.int64)
            for stream in map(self.split, names):
                for begin in range(0, len(stream), PIECE):
                    found += np.bincount(stream[begin : begin + PIECE], minlength=len(found))
            found.flags.writeable = False  # the cached array is returned again
            self._counts[where] = found
        return self._counts[where]
