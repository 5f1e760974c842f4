"""Reading compressed files and archive members without extracting anything to disk.

Path traversal (../../file) and links in an archive therefore have no effect. Files above `LARGEST` are refused.
"""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from .errors import DataError

LARGEST = 2**31
"""Most bytes of a decompressed file: several times the largest file of any data set."""
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, UnicodeDecodeError, LookupError)
"""Errors that reading a damaged or mislabelled file raises, besides OSError."""


def contents(path: Path) -> bytes:
    """The content of a file, decompressed if its name ends in .gz or .xz."""
    if path.suffix == ".gz":
        with gzip.open(path) as zipped:
            return limited(zipped, path)
    if path.suffix == ".xz":
        with lzma.open(path) as squeezed:
            return limited(squeezed, path)
    return path.read_bytes()


def tar_files(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The wanted regular files of a compressed tar archive by name, read in one pass."""
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if member.isfile() and wanted(name):
                file = archive.extractfile(member)
                assert file is not None  # a regular file always has content
                found[name] = limited(file, path)
    return found


def tar_members(path: Path, names: Sequence[str]) -> list[bytes]:
    """Members of a compressed tar archive, in the requested order."""
    found = tar_files(path, lambda name: name in names)
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"expected {path} to contain {missing[0]}, got an archive without it; download it again")
    return [found[name] for name in names]


def zip_member(path: Path, name: str) -> bytes:
    """A member of a zip archive."""
    with zipfile.ZipFile(path) as archive:
        try:
            with archive.open(name) as file:
                return limited(file, path)
        except KeyError:
            raise DataError(
                f"expected {path} to contain {name}, got an archive without it; download it again"
            ) from None


def limited(file: IO[bytes] | gzip.GzipFile | lzma.LZMAFile, path: Path) -> bytes:
    """Read an open file that is part of `path`, unless it is too large."""
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise DataError(f"expected files of at most {LARGEST:,} bytes in {path}, got a larger one; download it again")
    return content
