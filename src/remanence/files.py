"""Atomic file writes: a reader never sees a partial file, even if the writer was killed."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = ".writing-"
"""Prefix of the name of a file while it is being written."""
LEFT_OVER = 3600.0
"""Age in seconds after which a temporary file is assumed to be left over from a killed process."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path in the folder of `path`, unique to this process, with the same suffix.

    On success the temporary file is flushed to disk and renamed to `path`; on an error it is removed.
    """
    remove_left_overs(path.parent, older=LEFT_OVER)
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(4)}-{path.name}")
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        settle(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with whole(path) as temporary:
        temporary.write_bytes(content)


def append(path: Path, content: bytes, settled: bool = True) -> None:
    """Append to a file; with `settled`, flush it to disk (fsync)."""
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        if settled:
            os.fsync(file.fileno())


def remove_left_overs(folder: Path, older: float = 0.0) -> None:
    """Remove temporary files that were last modified at least `older` seconds ago."""
    for path in folder.glob(f"{TEMPORARY}????????-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime >= older:
                path.unlink()


def settle(folder: Path) -> None:
    """Flush a folder to disk (fsync), so that renames in it survive a crash. POSIX only."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """The folder for cached downloads and results: REMANENCE_CACHE, or that of the platform. It may not exist yet."""
    chosen = os.environ.get("REMANENCE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "remanence"
    usual = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(usual) if usual else Path.home() / ".cache") / "remanence"
