"""The vocabulary of a corpus: symbols and their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Level = Literal["word", "character", "byte"]
"""Kind of symbol. Bytes are represented as the characters U+0000 to U+00FF."""

END = "<eos>"
"""The end of a line."""
UNKNOWN = "<unk>"
"""Replaces every word that is not in the vocabulary."""


@dataclass(frozen=True)
class Vocabulary:
    """Symbols by id, in order of first occurrence in the training text.

    Args:
        words: the symbols; the first has id 0.
        unknown: the symbol that replaces unknown ones, or None to raise an error for them.
        level: kind of symbol: "word", "character" or "byte".
    """

    words: Sequence[str]
    unknown: str | None = None
    level: Level = "word"

    def __post_init__(self) -> None:
        if self.level not in get_args(Level):
            raise ValueError(f"expected level to be one of {', '.join(get_args(Level))}, got {self.level!r}")
        object.__setattr__(self, "words", tuple(self.words))
        if not self.words:
            raise ValueError("expected a vocabulary of at least one word, got none")
        wrong = next((word for word in self.words if not isinstance(word, str)), None)
        if wrong is not None:
            raise ValueError(f"expected the words of a vocabulary to be strings, got {wrong!r}")
        if len(self.index) < len(self.words):
            twice = next(word for number, word in enumerate(self.words) if self.index[word] != number)
            raise ValueError(f"expected the words of a vocabulary to be distinct, got {twice!r} twice")
        if self.unknown is not None and self.unknown not in self.index:
            raise ValueError(f"expected the unknown word to be in the vocabulary, got {self.unknown!r}; add it")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The id of every symbol."""
        return {word: number for number, word in enumerate(self.words)}

    @property
    def end(self) -> int | None:
        """The id of `<eos>`; None for a text without lines."""
        return self.index.get(END)

    def encode(self, words: str | Iterable[str]) -> NDArray[np.int32]:
        """Ids of symbols, `(N,)`; a text is split into symbols first."""
        if isinstance(words, str):
            words = self.split(words)
        if self.unknown is not None:
            other = self.index[self.unknown]
            return np.fromiter((self.index.get(word, other) for word in words), np.int32)
        try:
            return np.fromiter((self.index[word] for word in words), np.int32)
        except KeyError as error:
            raise ValueError(
                f"expected only {self.level}s of this vocabulary of {len(self):,}, which has no unknown symbol, "
                f"got {error.args[0]!r}; leave it out"
            ) from None

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """Symbols of ids."""
        found = [int(number) for number in numbers]
        outside = next((number for number in found if not 0 <= number < len(self)), None)
        if outside is not None:
            raise ValueError(f"expected ids from 0 to {len(self) - 1}, got {outside}")
        return [self.words[number] for number in found]

    def split(self, text: str) -> list[str]:
        """The symbols of a text. Every line break becomes `<eos>`, except at byte level."""
        if self.level == "byte":
            return list(text.encode("utf-8").decode("latin-1"))
        if self.level == "character":
            return [END if character == "\n" and END in self else character for character in text]
        return text.replace("\n", f" {END} ").split()

    def text(self, numbers: Iterable[int]) -> str:
        """The ids as readable text, with a line break for `<eos>`."""
        words = self.decode(numbers)
        if self.level == "byte":
            return "".join(words).encode("latin-1").decode("utf-8", errors="replace")
        if self.level == "character":
            return "".join("\n" if word == END else word for word in words)
        lines: list[list[str]] = [[]]
        for word in words:
            if word == END:
                lines.append([])
            else:
                lines[-1].append(word)
        return "\n".join(map(" ".join, lines))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"level": self.level, "unknown": self.unknown, "words": list(self.words)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Vocabulary:
        """The vocabulary from the plain data of `to_dict`."""
        return cls(plain["words"], plain["unknown"], plain["level"])
