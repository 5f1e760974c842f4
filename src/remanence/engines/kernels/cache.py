"""Compiled kernels and measurements cached on disk. Only this module reads or writes `kernels` in the cache folder.

Cached files are executed with the user's permissions when they are loaded. So the folder is private, and a folder that
others may write to is not used. File names end with the digest of the content: truncated or damaged files are removed,
and two processes that write the same file at once never see half of it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ...files import cache_folder, whole

UNKEPT = (OSError, RuntimeError)
"""Errors for a read-only or missing home folder. Kernels are then not cached and are compiled again the next time."""
OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""Write permission for group or others."""
DIGITS = 40


def folder() -> Path:
    """The private cache folder of this user, or a temporary folder of this process if that one is not private."""
    place = cache_folder() / "kernels"
    reason = _exposed_above(place)  # before anything is created there
    if reason is None:
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)
        reason = _exposed_above(place) or _exposed(place)
    return place if reason is None else _private(place, reason)


def file_name(parts: Iterable[str], suffix: str) -> str:
    """The cache file name for an artefact that depends on all of `parts`."""
    return f"{_digest(chr(10).join(parts).encode())}.{suffix}"


def find(name: str) -> Path | None:
    """The cached file of a name, if it is intact. Damaged files are removed."""
    return next((path for path, _ in _whole_files(name)), None)


def read(name: str) -> bytes | None:
    """The content of the cached file of a name, if it is intact."""
    return next((content for _, content in _whole_files(name)), None)


def keep(name: str, content: bytes) -> Path:
    """Write a file to the cache, atomically.

    Raises:
        OSError, RuntimeError: if the cache cannot be written, see `UNKEPT`.
    """
    stem, _, suffix = name.rpartition(".")
    path = folder() / f"{stem}.{_digest(content)}.{suffix}"
    with whole(path) as temporary:
        temporary.touch(0o600)
        temporary.write_bytes(content)
    return path


def count(*suffixes: str) -> int:
    """Number of cached files with these suffixes."""
    with suppress(*UNKEPT):
        return sum(path.suffix[1:] in suffixes for path in folder().iterdir())
    return 0


def _whole_files(name: str) -> Iterator[tuple[Path, bytes]]:
    stem, _, suffix = name.rpartition(".")
    with suppress(*UNKEPT):
        for path in sorted(folder().glob(f"{stem}.{'?' * DIGITS}.{suffix}")):
            content = _content(path)
            if content is None or _digest(content) != path.name.split(".")[-2]:
                path.unlink()
            else:
                yield path, content


def _content(path: Path) -> bytes | None:
    """The content of a file, or None if another user could have written it."""
    if path.is_symlink():
        return None
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        own = stat.S_ISREG(found.st_mode) and (os.name != "posix" or _is_own(found))
        return file.read() if own else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def _is_own(found: os.stat_result) -> bool:
    """Whether only this user can have written the file."""
    return found.st_uid == os.geteuid() and not found.st_mode & OTHERS


def _exposed(place: Path) -> str | None:
    """Why others may have written to the folder, as the end of a sentence; None if they cannot."""
    if os.name != "posix":
        return None
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "it is a link or a file"
    if not _is_own(found):
        return "it belongs to another user" if found.st_uid != os.geteuid() else "others may write to it"
    return None


def _exposed_above(place: Path) -> str | None:
    """Why others may replace the folder (they can write to a parent without the sticky bit); None if they cannot."""
    if os.name != "posix":
        return None
    path, real = place.absolute(), place.parent.resolve() / place.name
    for above in dict.fromkeys((*path.parents, *real.parents)):  # also after resolving links
        with suppress(FileNotFoundError):
            found = above.stat()
            writes = OTHERS if above in (path.parent, real.parent) else stat.S_IWOTH  # higher up, groups are trusted
            if found.st_uid not in (0, os.geteuid()):
                return f"{above} belongs to another user"
            if found.st_mode & writes and not found.st_mode & stat.S_ISVTX:
                return f"others may write to {above}"
    return None


_own: dict[Path, Path] = {}
_guard = threading.Lock()


def _private(place: Path, reason: str) -> Path:
    """A temporary folder to use instead, removed when this process exits."""
    with _guard:
        if place in _own:
            return _own[place]
        made = _own[place] = Path(tempfile.mkdtemp(prefix="remanence-"))
    atexit.register(_remove, made, os.getpid())
    warnings.warn(
        f"expected {place} to be a folder that only this user can write to, but {reason}: every process will recompile "
        "its kernels until you remove it or set REMANENCE_CACHE to another folder",
        stacklevel=2,
    )
    return made


def _remove(made: Path, process: int) -> None:
    if os.getpid() == process:  # not in a fork
        shutil.rmtree(made, ignore_errors=True)
