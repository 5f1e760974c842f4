"""`remanence.files` for the folders of runs: what cannot be written is answered by a `RunError`."""

from __future__ import annotations

from pathlib import Path

from .. import files


class RunError(ValueError):
    """Something about a run's directory that a person has to look at, in one sentence."""


class HeldError(RunError):
    """Another process trains there."""


def write(path: Path, content: bytes) -> None:
    """Put a file in place, all of it or nothing."""
    try:
        files.write(path, content)
    except OSError as error:
        raise cannot_write(path, error) from error


def append(path: Path, content: bytes, settled: bool = True) -> None:
    """Add to a file, and force that to disk unless it may be lost."""
    try:
        files.append(path, content, settled)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> RunError:
    """What to tell a person when a file cannot be written."""
    return RunError(
        f"expected to write {path}, got: {error.strerror or error}; "
        "what was saved before is whole, and the same command goes on from there once this is solved"
    )
