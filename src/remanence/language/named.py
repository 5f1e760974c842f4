"""The corpora used in the papers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .. import data
from ..data import DataError, DataSet, Texts
from .corpus import Corpus
from .kept import digest, numbered_once
from .numbering import Numbered, Numbering, closed, number_bytes
from .vocabulary import UNKNOWN, Level
from .wikipedia import clean


@dataclass(frozen=True)
class Named:
    """A corpus made from a data set."""

    name: str
    description: str
    source: str
    """Name of the data set."""
    level: Level
    number: Callable[[Texts], Numbered]

    @property
    def data_set(self) -> DataSet[Texts]:
        """The data set it is made from."""
        return data.KNOWN[self.source]

    def load(self) -> Corpus:
        """Find or download the files, verify them, and encode their text unless it is cached."""
        found = self.data_set.get()
        checksums = [file.checksum for file in found.form.needed]
        key = f"{self.name}-{digest(self.name, checksums)}"

        def number() -> Numbered:
            texts = self.data_set.load()
            try:
                return self.number(texts)
            except UnicodeDecodeError as error:
                raise data.DataError(
                    f"expected UTF-8 text in {found.where}, got byte {error.object[error.start]:#04x}; copy it again"
                ) from None

        return numbered_once(self.name, key, number)


def words(texts: Texts) -> Numbered:
    """Words separated by spaces; every line ends with `<eos>`, even empty ones. Rare words are `<unk>` in the files."""
    numbering = Numbering()
    streams = [numbering.read(part.decode("utf-8"), "word") for part in (texts.train, texts.validation, texts.test)]
    return closed(numbering, streams, "word", UNKNOWN if UNKNOWN in numbering else None)


def characters(texts: Texts) -> Numbered:
    """Characters of the same text: one space between words, `<eos>` after every line; `<unk>` is five characters."""
    numbering = Numbering()
    streams = []
    for part in (texts.train, texts.validation, texts.test):
        lines = part.decode("utf-8").removesuffix("\n").split("\n")
        streams.append(numbering.read("".join(f"{' '.join(line.split())}\n" for line in lines), "character"))
    return closed(numbering, streams, "character", None)


def plain_bytes(texts: Texts) -> Numbered:
    """Bytes, unchanged."""
    return number_bytes((texts.train, texts.validation, texts.test), "byte")


def letters(texts: Texts) -> Numbered:
    """Letters and spaces, unchanged."""
    return number_bytes((texts.train, texts.validation, texts.test), "character")


def cleaned(texts: Texts) -> Numbered:
    """The start of text8, made from enwik8, a tenth of the dump that text8 was made from."""
    text = clean(texts.train + texts.validation + texts.test)
    first, second = len(text) * 90 // 100, len(text) * 95 // 100
    numbered = number_bytes((text[:first], text[first:second], text[second:]), "character")
    note = (
        f"the start of text8, {len(text):,} characters made from enwik8, split 90/5/5; the standard corpus has "
        "100,000,000, and its validation and test splits are not in this one"
    )
    return Numbered(numbered.vocabulary, numbered.streams, note)


KNOWN: dict[str, Named] = {
    known.name: known
    for known in (
        Named("ptb", "Penn Treebank, words", "ptb", "word", words),
        Named("ptb-char", "Penn Treebank, characters", "ptb", "character", characters),
        Named("wikitext-2", "WikiText-2, words", "wikitext-2", "word", words),
        Named("enwik8", "an English Wikipedia dump, bytes", "enwik8", "byte", plain_bytes),
        Named("text8", "text of English Wikipedia, a to z and spaces", "text8", "character", letters),
        Named("text8-from-enwik8", "the first three quarters of text8", "enwik8", "character", cleaned),
    )
}


def text8() -> Corpus:
    """Text8, or its start made from enwik8 if only that was found; `note` says which."""
    try:
        return KNOWN["text8"].load()
    except DataError:
        part = KNOWN["text8-from-enwik8"]
        # A damaged text8 must be reported, not silently replaced.
        if KNOWN["text8"].data_set.find() is not None or part.data_set.find() is None:
            raise
        return part.load()
