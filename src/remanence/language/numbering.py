"""Encoding of texts as ids. The vocabulary grows while reading, so that no text is held as a list of words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .vocabulary import END, Level, Vocabulary

PIECE = 1 << 23
"""Approximate number of characters split into words at once."""


@dataclass(frozen=True, eq=False)
class Numbered:
    """A vocabulary and the id streams of train, validation and test, each `(N,)`."""

    vocabulary: Vocabulary
    streams: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
    note: str = ""


class Numbering(dict[str, int]):
    """A dictionary that gives every new symbol the next id."""

    def __missing__(self, symbol: str) -> int:
        number = self[symbol] = len(self)
        return number

    def read(self, text: str, level: Level) -> NDArray[np.int32]:
        """Ids of the words or characters of whole lines, with `<eos>` after each line, `(N,)`."""
        streams = []
        for piece in pieces(text if text.endswith("\n") or not text else text + "\n"):
            # For characters the line break is the end symbol; `symbols` renames it in the end.
            symbols: Sequence[str] = piece if level == "character" else piece.replace("\n", f" {END} ").split()
            streams.append(np.fromiter(map(self.__getitem__, symbols), np.int32, len(symbols)))
        return joined(streams)

    @property
    def symbols(self) -> list[str]:
        """All symbols, in the order of their ids."""
        return [END if symbol == "\n" else symbol for symbol in self]


def pieces(text: str) -> Iterator[str]:
    """Iterate over a text in pieces of whole lines."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + PIECE) + 1 or len(text)
        yield text[begin:end]
        begin = end


def joined(streams: Iterable[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Concatenate streams."""
    return np.concatenate([np.empty(0, np.int32), *streams])


def closed(numbering: Numbering, streams: Sequence[NDArray[np.int32]], level: Level, unknown: str | None) -> Numbered:
    """Use every symbol that was read as vocabulary, the training text first."""
    train, validation, test = streams
    return Numbered(Vocabulary(numbering.symbols, unknown, level), (train, validation, test))


def limited(
    numbering: Numbering, streams: Sequence[NDArray[np.int32]], level: Level, unknown: str, least: int
) -> Numbered:
    """Use the symbols that are frequent enough in the training text as vocabulary; all others become unknown.

    Args:
        numbering: ids of every symbol that was read, the training text first.
        streams: train, validation and test, in these ids.
        level: kind of symbol.
        unknown: the unknown symbol. It comes last unless it is in the training text.
        least: minimum number of occurrences of a symbol.
    """
    symbols = numbering.symbols
    often = np.bincount(streams[0], minlength=len(symbols))
    keep = often >= least
    for always in (END, unknown):
        if always in symbols:
            place = symbols.index(always)
            keep[place] = often[place] > 0
    words = [symbol for symbol, kept in zip(symbols, keep, strict=True) if kept]
    if unknown not in words:
        words.append(unknown)
    numbers = np.where(keep, np.cumsum(keep) - 1, words.index(unknown)).astype(np.int32)
    train, validation, test = (numbers[stream] for stream in streams)
    return Numbered(Vocabulary(words, unknown, level), (train, validation, test))


def number_bytes(parts: Sequence[bytes], level: Level) -> Numbered:
    """Use every byte as a symbol. The vocabulary is the bytes that occur."""
    order: dict[int, None] = {}
    for part in parts:  # `find` stops at the first occurrence
        places = {byte: part.find(byte) for byte in range(256)}
        order.update(dict.fromkeys(sorted((byte for byte in places if places[byte] >= 0), key=places.__getitem__)))
    table = np.zeros(256, np.int32)
    table[list(order)] = np.arange(len(order))
    train, validation, test = (table[np.frombuffer(part, np.uint8)] for part in parts)
    return Numbered(Vocabulary([chr(byte) for byte in order], None, level), (train, validation, test))
