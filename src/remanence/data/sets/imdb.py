"""IMDB: the labelled part of the Large Movie Review Dataset (Maas et al. 2011)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..archives import contents, tar_files
from ..dataset import Counts, DataSet, File, Form
from ..errors import DataError
from ..records import Reviews

ARCHIVE = File(
    "aclImdb_v1.tar.gz",
    "md5:7c2ac02c03563afcf9b574c7e56c153a",
    84_125_825,
    (
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        "https://dataset.bj.bcebos.com/imdb%2FaclImdb_v1.tar.gz",
    ),
)
LINES = (
    File("train.jsonl.xz", "sha256:3cde766e8e8d6425c6c6c983121020a50375d77d0025a83079564252d3294d75", 9_306_600),
    File("test.jsonl.xz", "sha256:3a4465fe463d13524fc0cd9aaa1ea0490942106c75870764f7830fbb61ae8267", 9_061_860),
)
UNPACKED = "aclImdb"
CONTENT = {
    "train": "22c931623e67f3bdcd9935d0f5b568164a104a1bae7e7451e870d4257788cc66",
    "test": "bde59eb478b67f8646a76a95df08894faacb9eafa38ab43300f53ff33baae0a5",
}
"""sha256 of all reviews as JSON lines, because nobody publishes checksums of the 50,000 extracted files."""
PATTERN = re.compile(rf"{UNPACKED}/(train|test)/(neg|pos)/(\d+)_(\d+)\.txt")
"""A file name has the number of the review within its class and its star rating."""


class Review(NamedTuple):
    """One review. The reviews of a split are sorted by these fields."""

    label: int
    id: int
    rating: int
    text: str


def from_names(files: Iterable[tuple[str, bytes]]) -> dict[str, list[Review]]:
    """Reviews by split, from files named as in the archive."""
    found: dict[str, list[Review]] = {"train": [], "test": []}
    for name, raw in files:
        match = PATTERN.fullmatch(name)
        if match:
            split, tone, number, stars = match.groups()
            found[split].append(Review(int(tone == "pos"), int(number), int(stars), raw.decode("utf-8")))
    return {split: sorted(reviews) for split, reviews in found.items()}


def together(found: dict[str, list[Review]]) -> Reviews:
    """Both splits as one record, without numbers and ratings."""

    def split(name: str) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.uint8]]]:
        return [review.text for review in found[name]], np.array([review.label for review in found[name]], np.uint8)

    return Reviews(*split("train"), *split("test"))


def read_archive(folder: Path) -> Reviews:
    """Read the archive without extracting it."""
    return together(from_names(tar_files(folder / ARCHIVE.name, lambda name: bool(PATTERN.fullmatch(name))).items()))


def read_unpacked(folder: Path) -> Reviews:
    """Read the extracted archive, whose content is verified here."""
    paths = (folder / UNPACKED).glob("*/*/*.txt")
    found = from_names(
        (path.relative_to(folder).as_posix(), path.read_bytes()) for path in paths if path.parent.name in ("neg", "pos")
    )
    for split, reviews in found.items():
        if content(reviews) != CONTENT[split]:
            raise DataError(
                f"expected {folder / UNPACKED / split} to contain the published {split} reviews, got "
                f"{len(reviews):,} reviews with different content; extract {ARCHIVE.name} again"
            )
    return together(found)


def content(reviews: list[Review]) -> str:
    """The sha256 of reviews as JSON lines."""
    digest = hashlib.sha256()
    for label, number, rating, text in reviews:
        fields = {"id": number, "label": label, "rating": rating, "text": text}
        digest.update(json.dumps(fields, ensure_ascii=False).encode("utf-8") + b"\n")
    return digest.hexdigest()


def lines(path: Path) -> list[Review]:
    """Reviews from a file of JSON lines."""
    rows = map(json.loads, contents(path).splitlines())  # bytes, because they split at line ends only
    return [Review(row["label"], row["id"], row["rating"], row["text"]) for row in rows]


def read_lines(folder: Path) -> Reviews:
    """Read JSON lines, one file per split."""
    return together({split: lines(folder / file.name) for split, file in zip(CONTENT, LINES, strict=True)})


def count(reviews: Reviews) -> Counts:
    """Number of reviews per split."""
    return {"train": {"reviews": len(reviews.train_texts)}, "test": {"reviews": len(reviews.test_texts)}}


IMDB = DataSet(
    name="imdb",
    description="movie reviews, positive or negative",
    forms=(
        Form(LINES, read_lines),
        Form((ARCHIVE,), read_archive),
        Form((File(UNPACKED, checksum=None),), read_unpacked),
    ),
    counts={"train": {"reviews": 25_000}, "test": {"reviews": 25_000}},
    count=count,
)


def imdb() -> Reviews:
    """IMDB: 25,000 texts each for training and test, labels 1 (positive) and 0; sorted by label, then by number."""
    return IMDB.load()
