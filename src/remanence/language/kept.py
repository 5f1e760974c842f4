"""Encoded texts in the cache folder: plain memory-mapped arrays, and a description in JSON.

    language/<key>/train.npy, validation.npy, test.npy, corpus.json

The description is written last and has checksums of the arrays and the vocabulary. If a checksum does not match, the
corpus is encoded again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.checksums import checksum_of, remember, verify
from ..data.writing import writing
from ..files import cache_folder
from .corpus import SPLITS, Corpus
from .numbering import Numbered
from .vocabulary import Vocabulary

VERSION = 1
"""Increase it when the same source gives different ids or different files."""
DESCRIPTION = "corpus.json"


def digest(*parts: Any) -> str:
    """A short hash of plain data: the content of a source, and the options."""
    plain = json.dumps([VERSION, *parts], sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def numbered_once(name: str, key: str, make: Callable[[], Numbered]) -> Corpus:
    """Read a corpus from the cache folder; encode and store it first if it is missing or incomplete.

    Args:
        name: name of the corpus.
        key: name of its folder. It must encode everything that the ids depend on.
        make: encodes the source.
    """
    folder = cache_folder() / "language" / key
    corpus = read(name, folder)
    if corpus is None:
        write(folder, make())
        corpus = read(name, folder)
    assert corpus is not None  # it was just written
    return corpus


def write(folder: Path, numbered: Numbered) -> None:
    """Write every file atomically, the description last."""
    checksums = {}
    for split, stream in zip(SPLITS, numbered.streams, strict=True):
        path = folder / f"{split}.npy"
        with writing(path) as temporary:
            np.save(temporary, stream, allow_pickle=False)
            checksums[split] = checksum_of(temporary, "sha256")
        remember(path, checksums[split])
    with writing(folder / DESCRIPTION) as temporary:
        vocabulary = numbered.vocabulary.to_dict()
        checksums["vocabulary"] = digest(vocabulary)
        description = {"note": numbered.note, "checksums": checksums, "vocabulary": vocabulary}
        temporary.write_text(json.dumps(description, ensure_ascii=False, indent=0), encoding="utf-8")


def read(name: str, folder: Path) -> Corpus | None:
    """Read the files of `write`; None if they are missing or damaged."""
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        checksums = description["checksums"]
        if checksums["vocabulary"] != digest(description["vocabulary"]):
            return None
        vocabulary = Vocabulary.from_dict(description["vocabulary"])
        train, validation, test = (stream(folder / f"{split}.npy", checksums[split]) for split in SPLITS)
        return Corpus(name, vocabulary, train, validation, test, str(description["note"]))
    except (OSError, ValueError, LookupError, TypeError, EOFError):
        return None


def stream(path: Path, checksum: str) -> NDArray[np.int32]:
    """Memory-map an array after verifying its checksum."""
    verify(path, checksum)
    array: NDArray[np.int32] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
