"""Reviews as word ids, computed once and cached on disk."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .words import Encoded, encode

VERSION = 1
"""Increase it when the tokeniser or the file format changes."""


def encoded_once(train_texts: Sequence[str], test_texts: Sequence[str]) -> Encoded:
    """`words.encode`, cached in a file whose name depends on the texts. A damaged file is rebuilt."""
    from ..data.writing import cached

    name = f"imdb/words-{VERSION}-{digest(train_texts, test_texts)}.npz"

    def make(path: Path) -> None:
        write(path, encode(train_texts, test_texts))

    path = cached(name, make)
    kept = read(path)
    if kept is None:
        path.unlink()
        kept = read(cached(name, make))
    assert kept is not None
    return kept


def digest(*parts: Sequence[str]) -> str:
    """A short hash of these texts."""
    total = hashlib.sha256()
    for texts in parts:
        for text in texts:
            total.update(text.encode() + b"\0")
        total.update(b"\1")
    return total.hexdigest()[:16]


def read(path: Path) -> Encoded | None:
    """Read a file of `write`; None if it is damaged."""
    try:
        # Opened here because np.load leaves a damaged file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            words = bytes(arrays["words"]).decode().split("\n")
            return Encoded(words, *(arrays[name] for name in Encoded._fields[1:]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def write(path: Path, encoded: Encoded) -> None:
    """Write arrays only; the words are stored as the bytes of one text with one word per line."""
    words = np.frombuffer("\n".join(encoded.words).encode(), dtype=np.uint8)
    np.savez(path, words=words, **{name: getattr(encoded, name) for name in Encoded._fields[1:]})
