"""Verification of files by checksum."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from ..files import cache_folder
from .errors import DataError
from .writing import writing

LARGE = 2**27
"""Size in bytes above which a file is not read in full each time."""
SAMPLES, SAMPLE = 64, 2**14
"""Number of samples of a large file, and bytes per sample."""


def checksum_of(path: Path, algorithm: str) -> str:
    """The checksum of a file, such as "sha256:9f86d0..."."""
    with path.open("rb") as file:
        # Many sites publish md5 only. It detects damage, not attacks.
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def verify(path: Path, checksum: str, size: int | None = None, *, again: bool = False) -> None:
    """Raise a `DataError` if the content of a file is not the published one.

    Files of up to `LARGE` bytes are read each time. A larger file is remembered once it was verified, by its file
    attributes and a digest of samples of its content; `again` reads all of it.

    Args:
        path: the file.
        checksum: algorithm and digest, as in "md5:5dd7e0...".
        size: expected size in bytes, for the message.
        again: whether to read the whole file even if it is remembered.
    """
    try:
        if not again and remembered(path, checksum):
            return
        found = checksum_of(path, checksum.partition(":")[0])
        has = path.stat().st_size
    except OSError as error:
        raise DataError(f"expected a readable file, got {path}: {error.strerror}; correct that") from None
    if found != checksum:
        cut = f" and only {has:,} of {size:,} bytes" if size is not None and has < size else ""
        raise DataError(
            f"expected {path} to have checksum {checksum}, got {found}{cut}: the file is damaged or a different one; "
            "delete it, and copy or download it again"
        )
    if has > LARGE:
        remember(path, checksum)


def remember(path: Path, checksum: str) -> None:
    """Record in the cache folder that this file was verified. Without a cache folder it is read in full each time."""
    with suppress(OSError, DataError), writing(stamp(path)) as temporary:
        temporary.write_text(json.dumps(facts(path, checksum)), encoding="utf-8")


def remembered(path: Path, checksum: str) -> bool:
    """Whether this large file was verified before and has not changed since."""
    try:
        if path.stat().st_size <= LARGE:
            return False
        return bool(json.loads(stamp(path).read_text(encoding="utf-8")) == facts(path, checksum))
    except (OSError, ValueError):
        return False


def facts(path: Path, checksum: str) -> dict[str, str | int | list[int]]:
    """The content of a stamp, the record of a verified file."""
    about = path.stat()
    return {
        "path": str(path.resolve()),
        "size": about.st_size,
        "times": [about.st_mtime_ns, about.st_ctime_ns],  # ctime is set by the system and cannot be set back
        "inode": about.st_ino,
        "samples": sampled(path, about.st_size),
        "checksum": checksum,
    }


def sampled(path: Path, size: int) -> str:
    """A digest of evenly spaced samples, including the start and the end."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for number in range(SAMPLES):
            file.seek(max(0, size - SAMPLE) * number // (SAMPLES - 1))
            digest.update(file.read(SAMPLE))
    return digest.hexdigest()


def stamp(path: Path) -> Path:
    """The path of the stamp of a file."""
    return cache_folder() / "verified" / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]}.json"
