"""GloVe 6B: word vectors from Wikipedia 2014 and Gigaword 5 (Pennington, Socher and Manning 2014)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from ..dataset import Counts, DataSet, File, Form
from ..errors import DataError
from ..records import WordVectors

ARCHIVE = File(
    "glove.6B.zip",
    "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
    862_182_613,
    (
        "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip",
        "https://nlp.stanford.edu/data/glove.6B.zip",
        "https://huggingface.co/stanfordnlp/glove/resolve/main/glove.6B.zip",
    ),
)
TEXT = File("glove.6B.100d.txt", "sha256:95dde4dfd627ab26608d33e76d1195ec059734bd29089ea52cadb08d07c64544", 347_116_733)
SUBSET = File(
    "glove.6B.100d.imdb-subset.npz",
    "sha256:db19b544c3a8874c26817be1f700b9e8ba1d61518483ac5f799393c567b1d71d",
    14_415_004,
)
DIMENSIONS = (50, 100, 200, 300)
AT_ONCE = 20_000
"""Lines parsed at once."""


def from_lines(lines: Iterable[bytes], dimensions: int) -> WordVectors:
    """Parse lines of a word and its vector, separated by spaces."""
    words: list[str] = []
    parts: list[np.ndarray[tuple[int, int], np.dtype[np.float32]]] = []
    for some in groups(lines):
        split = [line.rstrip(b"\n").partition(b" ") for line in some]
        words += [word.decode("utf-8") for word, _, _ in split]
        numbers = np.fromstring(b" ".join(rest for _, _, rest in split), np.float32, sep=" ")
        if numbers.size != len(split) * dimensions:
            raise DataError(f"expected {dimensions} numbers after each word of GloVe, got other lines; copy it again")
        parts.append(numbers.reshape(len(split), dimensions))
    return WordVectors(words, np.concatenate(parts))


def groups(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lines in groups, so that the whole text need not be in memory."""
    rest = iter(lines)
    while some := list(islice(rest, AT_ONCE)):
        yield some


def read_text(folder: Path) -> WordVectors:
    """Read the text file."""
    with (folder / TEXT.name).open("rb") as file:
        return from_lines(file, 100)


def read_archive(folder: Path, dimensions: int) -> WordVectors:
    """Read a text file inside the archive."""
    with ZipFile(folder / ARCHIVE.name) as archive, archive.open(f"glove.6B.{dimensions}d.txt") as file:
        return from_lines(file, dimensions)


def read_subset(folder: Path) -> WordVectors:
    """Read the file with the words that occur in IMDB."""
    # Opened here because np.load leaves a damaged file open.
    with (folder / SUBSET.name).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return WordVectors(arrays["words"].tolist(), arrays["vectors"])


def count(vectors: WordVectors) -> Counts:
    """Number of words, and dimension of their vectors."""
    return {"all": {"words": len(vectors.words), "dimensions": vectors.vectors.shape[1]}}


def vectors_of(dimensions: int) -> DataSet[WordVectors]:
    """GloVe with vectors of one dimension. Only dimension 100 has other forms than the archive."""
    if dimensions not in DIMENSIONS:
        raise ValueError(f"expected dimensions to be one of {', '.join(map(str, DIMENSIONS))}, got {dimensions!r}")
    archive = Form((ARCHIVE,), partial(read_archive, dimensions=dimensions))
    smaller = {"all": {"words": 38_354, "dimensions": 100}}
    others = (Form((TEXT,), read_text), archive, Form((SUBSET,), read_subset, counts=smaller))
    return DataSet(
        name="glove",
        description="GloVe 6B word vectors; all, or the words of IMDB",
        forms=others if dimensions == 100 else (archive,),
        counts={"all": {"words": 400_000, "dimensions": dimensions}},
        count=count,
    )


GLOVE = vectors_of(100)


def glove(dimensions: int = 100) -> WordVectors:
    """GloVe 6B: words and their float32 vectors `(N, dimensions)`, most frequent first.

    N is 400,000, or 38,354 if only the file with the words of IMDB was found.

    Args:
        dimensions: 50, 100, 200 or 300.
    """
    return vectors_of(dimensions).load()
