"""Reading compressed files and members of archives, without unpacking anything to disk.

So a name like ../../file or a link in an archive leads nowhere, and what would be larger than `LARGEST` is refused.
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
"""Bytes of a decompressed file: several times the largest that any data set has."""
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, UnicodeDecodeError, LookupError)
"""What a file that is not what its name says ends in, besides OSError."""


def contents(path: Path) -> bytes:
    """All of a file, decompressed if its name ends with .gz or .xz."""
    if path.suffix == ".gz":
        with gzip.open(path) as zipped:
            return limited(zipped, path)
    if path.suffix == ".xz":
        with lzma.open(path) as squeezed:
            return limited(squeezed, path)
    return path.read_bytes()


def tar_files(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Those plain files of a compressed tar archive that are wanted, by name, read in one pass."""
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if member.isfile() and wanted(name):
                file = archive.extractfile(member)
                assert file is not None  # a plain file always has content
                found[name] = limited(file, path)
    return found


def tar_members(path: Path, names: Sequence[str]) -> list[bytes]:
    """Members of a compressed tar archive, in the order asked for."""
    found = tar_files(path, lambda name: name in names)
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"expected {path} to hold {missing[0]}, got an archive without it; download it again")
    return [found[name] for name in names]


def zip_member(path: Path, name: str) -> bytes:
    """A member of a zip archive."""
    with zipfile.ZipFile(path) as archive:
        try:
            with archive.open(name) as file:
                return limited(file, path)
        except KeyError:
            raise DataError(f"expected {path} to hold {name}, got an archive without it; download it again") from None


def limited(file: IO[bytes] | gzip.GzipFile | lzma.LZMAFile, path: Path) -> bytes:
    """All of an opened file that is a part of `path`, unless that is too much."""
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise DataError(f"expected {path} to hold at most {LARGEST:,} bytes in a file, got more; download it again")
    return content
