"""Writing files so that a reader, or a process that was killed, never sees half of one."""

from __future__ import annotations

import os
from pathlib import Path

TEMPORARY = ".tmp"
"""How the name of a file ends while it is written."""


class RunError(ValueError):
    """Something about a run's directory that a person has to look at, in one sentence."""


def write(path: Path, content: bytes) -> None:
    """Put a file in place, all of it or nothing: written under another name, forced to disk, renamed."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        settle(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def append(path: Path, content: bytes, settled: bool = True) -> None:
    """Add to a file, and force that to disk unless it may be lost."""
    try:
        with open(path, "ab") as file:
            file.write(content)
            file.flush()
            if settled:
                os.fsync(file.fileno())
    except OSError as error:
        raise cannot_write(path, error) from error


def settle(folder: Path) -> None:
    """Force the names in a folder to disk, where the system lets one."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_write(path: Path, error: OSError) -> RunError:
    """What to tell a person when a file cannot be written."""
    return RunError(
        f"expected to write {path}, got: {error.strerror or error}; "
        "what was saved before is whole, and the same command goes on from there once this is solved"
    )
