"""Files that are there whole or not at all: a reader, or a process that was killed, never sees half of one."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = ".writing-"
"""How the name of a file begins while it is written."""
LEFT_OVER = 3600.0
"""Seconds after which a temporary file belongs to a process that was killed."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, of its own for every process, with the same ending.

    What is written there is forced to disk and becomes `path` if all goes well; else it is removed.
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
    """Put a file in place, all of it or nothing."""
    with whole(path) as temporary:
        temporary.write_bytes(content)


def append(path: Path, content: bytes, settled: bool = True) -> None:
    """Add to a file, and force that to disk unless it may be lost."""
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        if settled:
            os.fsync(file.fileno())


def remove_left_overs(folder: Path, older: float = 0.0) -> None:
    """Remove temporary files that nobody has touched for so many seconds."""
    for path in folder.glob(f"{TEMPORARY}????????-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime >= older:
                path.unlink()


def settle(folder: Path) -> None:
    """Force the names in a folder to disk, where the system lets one."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """The folder for what is downloaded or computed once. It need not exist yet."""
    chosen = os.environ.get("REMANENCE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "remanence"
    usual = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(usual) if usual else Path.home() / ".cache") / "remanence"
