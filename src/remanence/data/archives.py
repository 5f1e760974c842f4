"""Reading compressed files and members of archives, without unpacking anything to disk."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .errors import DataError


def contents(path: Path) -> bytes:
    """All of a file, decompressed if its name ends with .gz or .xz."""
    if path.suffix == ".gz":
        with gzip.open(path) as zipped:
            return zipped.read()
    if path.suffix == ".xz":
        with lzma.open(path) as squeezed:
            return squeezed.read()
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
                found[name] = file.read()
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
            return archive.read(name)
        except KeyError:
            raise DataError(f"expected {path} to hold {name}, got an archive without it; download it again") from None
