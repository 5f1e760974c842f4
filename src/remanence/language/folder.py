"""A custom corpus: a folder of plain text files."""

from __future__ import annotations

import codecs
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data import DataError
from .corpus import SPLITS, Corpus
from .kept import digest, numbered_once
from .numbering import Numbered, Numbering, joined, limited
from .vocabulary import UNKNOWN, Level

SHARES = (0.9, 0.05, 0.05)
NAMES = {"train": {"train"}, "validation": {"validation", "valid", "val", "dev"}, "test": {"test"}}
"""Words in the names of files or folders that mark a split, as in `wiki.train.tokens`."""

Shares = tuple[float, float, float]
Split = Shares | Mapping[str, str | Sequence[str]]
"""Fractions of train, validation and test, or file name patterns for each."""


@dataclass(frozen=True)
class Folder:
    """A folder of text files, with the options for reading it.

    All files are read in the order of their names, including those in subfolders, except hidden ones.

    Args:
        path: the folder.
        level: "word" or "character".
        split: fractions of the tokens, `(0.9, 0.05, 0.05)`, or file name patterns for each split,
            `{"train": "19*.txt", "validation": ["2000.txt"], "test": ["2001.txt"]}`. None: by files if they are
            named `train.txt`, `valid.txt` and `test.txt` (or are in folders of these names), else by the fractions
            above.
        lower: whether to convert to lower case.
        least: words that occur less often in the training text become `<unk>`.
        encoding: encoding of the files.
    """

    path: Path
    level: Level = "word"
    split: Split | None = None
    lower: bool = False
    least: int = 1
    encoding: str = "utf-8"
    files: tuple[Path, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.level not in ("word", "character"):
            raise ValueError(f"expected level to be word or character, got {self.level!r}")
        if self.least < 1:
            raise ValueError(f"expected least to be at least 1, got {self.least}")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ValueError(f"expected encoding to be a Python codec, such as utf-8, got {self.encoding!r}") from None
        if not self.path.is_dir():
            what = "a file; put it into its own folder" if self.path.exists() else "nothing there"
            raise DataError(f"expected {self.path} to be a folder of text files, got {what}")
        object.__setattr__(self, "files", tuple(files(self.path)))
        if not self.files:
            raise DataError(f"expected text files in {self.path}, got an empty folder; put some there")

    def load(self) -> Corpus:
        """Load the corpus; its text is encoded unless it is cached."""
        parts = self.parts()
        options = [self.level, self.lower, self.least, codecs.lookup(self.encoding).name]
        plain = list(parts) if isinstance(parts, tuple) else {split: names(parts[split], self.path) for split in SPLITS}
        used = self.files if isinstance(parts, tuple) else [file for split in SPLITS for file in parts[split]]
        key = f"folder-{digest(contents(used, self.path), options, plain)}"
        return numbered_once(self.path.resolve().name, key, lambda: self.number(parts))

    def parts(self) -> Shares | dict[str, list[Path]]:
        """The fractions, or the files of every split."""
        if self.split is None:
            return called(self.files, self.path) or SHARES
        return matching(self.split, self.files, self.path) if isinstance(self.split, Mapping) else shares(self.split)

    def number(self, parts: Shares | dict[str, list[Path]]) -> Numbered:
        """Read and encode all files."""
        numbering = Numbering()
        if isinstance(parts, tuple):
            streams = cut(joined(numbering.read(self.text(file), self.level) for file in self.files), parts)
        else:
            streams = [joined(numbering.read(self.text(file), self.level) for file in parts[split]) for split in SPLITS]
        for split, stream in zip(SPLITS, streams, strict=True):
            if not len(stream):
                raise DataError(f"expected text for {split} in {self.path}, got none; add text or change the split")
        return limited(numbering, streams, self.level, UNKNOWN, self.least)

    def text(self, file: Path) -> str:
        """The text of a file, with normalised line breaks."""
        try:
            raw = file.read_bytes()
        except OSError as error:
            raise DataError(f"expected a readable file, got {file}: {error.strerror}; correct that") from None
        try:
            text = raw.decode(self.encoding).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            byte = f"byte {raw[error.start] if error.start < len(raw) else 0:#04x} at position {error.start:,}"
            raise DataError(
                f"expected {file} to be text in {self.encoding}, got {byte}; "
                "save it in that encoding, set encoding=, or remove it from the folder"
            ) from None
        if "\0" in text:
            raise DataError(
                f"expected {file} to be plain text in {self.encoding}, got zero bytes, as in UTF-16 or binary files; "
                "set encoding=, or remove it from the folder"
            )
        if not text.strip():
            raise DataError(f"expected text in {file}, got an empty file; remove it from the folder")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text.lower() if self.lower else text


def files(folder: Path) -> Iterator[Path]:
    """All files of a folder that are not hidden, sorted by name."""
    inside = {path: path.relative_to(folder).parts for path in folder.rglob("*")}
    for path in sorted(inside, key=inside.__getitem__):
        if path.is_file() and not any(part.startswith(".") for part in inside[path]):
            yield path


def names(paths: Sequence[Path], folder: Path) -> list[str]:
    """Names relative to the folder, the same on every operating system."""
    return [path.relative_to(folder).as_posix() for path in paths]


def contents(paths: Sequence[Path], folder: Path) -> list[list[str]]:
    """Name and checksum of every file."""
    found = []
    for path, name in zip(paths, names(paths, folder), strict=True):
        try:
            with path.open("rb") as file:
                found.append([name, hashlib.file_digest(file, "sha256").hexdigest()])
        except OSError as error:
            raise DataError(f"expected a readable file, got {path}: {error.strerror}; correct that") from None
    return found


def called(paths: Sequence[Path], folder: Path) -> dict[str, list[Path]] | None:
    """Files grouped by split names; None if they have other names.

    Test text in the training split would be worse than an error: if train and another split exist, all three must
    exist, and no other files.
    """
    found: dict[str, list[Path]] = {split: [] for split in SPLITS}
    others: list[Path] = []
    for path in paths:
        first = re.split("[._-]", path.relative_to(folder).parts[0].lower())
        split = next((split for split in SPLITS if set(first) & NAMES[split]), None)
        if split is None:
            others.append(path)
        else:
            found[split].append(path)
    if not found["train"] or not (found["validation"] or found["test"]):
        return None
    lacking = [split for split in SPLITS if not found[split]]
    if others or lacking:
        what = f"{others[0]} too" if others else f"none for {lacking[0]}"
        raise DataError(
            f"expected {folder} to contain files for {', '.join(SPLITS)} only, got {what}; change that or set split="
        )
    return found


def matching(patterns: Mapping[str, str | Sequence[str]], paths: Sequence[Path], folder: Path) -> dict[str, list[Path]]:
    """Files of every split, by patterns."""
    if set(patterns) != set(SPLITS):
        raise ValueError(f"expected split to name files for {', '.join(SPLITS)}, got {', '.join(patterns) or 'none'}")
    found: dict[str, list[Path]] = {}
    taken: dict[Path, str] = {}
    for split in SPLITS:
        wanted = patterns[split]
        chosen: set[Path] = set()
        for pattern in [wanted] if isinstance(wanted, str) else wanted:
            fits = [path for path in paths if path.relative_to(folder).match(pattern)]
            if not fits:
                raise ValueError(f"expected files like {pattern!r} for {split} in {folder}, found none")
            chosen.update(fits)
        for path in chosen:
            if taken.setdefault(path, split) != split:
                raise ValueError(f"expected every file in one split only, got {path} in {taken[path]} and {split}")
        found[split] = [path for path in paths if path in chosen]
    return found


def shares(split: Shares) -> Shares:
    """Check the fractions of the splits."""
    try:
        train, validation, test = map(float, split)
    except (TypeError, ValueError):
        train = validation = test = math.nan
    if not (min(train, validation, test) > 0 and math.isclose(train + validation + test, 1, abs_tol=1e-6)):
        raise ValueError(f"expected split to be three fractions above 0 that sum to 1, got {split!r}")
    return train, validation, test


def cut(tokens: NDArray[np.int32], parts: Shares) -> list[NDArray[np.int32]]:
    """Split a stream into three consecutive parts."""
    first = round(len(tokens) * parts[0])
    return [tokens[:first], *np.split(tokens[first:], [round(len(tokens) * (parts[0] + parts[1])) - first])]
