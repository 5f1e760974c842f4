"""Compiled kernels and measurements cached on disk. Only this module reads or writes `kernels` in the cache folder.

Cached files are executed with the user's permissions when they are loaded. So the folder is private, and a folder that
others may write to is not used. File names end with the digest of the content: truncated or damaged files are removed,
and two processes that write the same file at once never see half of it. Where the folder cannot be used, or not be
written, a temporary one takes new files, so that a process compiles nothing twice.
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
"""Errors if no folder can be written, not even a temporary one. Kernels are then not cached."""
OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""Write permission for group or others."""
DIGITS = 40


def folder() -> Path:
    """The private cache folder of this user, or a temporary folder of this process if that one cannot be used."""
    try:
        place = cache_folder() / "kernels"
    except RuntimeError as error:
        return _private(Path("~"), f"it is unknown ({error})")
    try:
        reason = _exposed_above(place)  # before anything is created there
        if reason is None:
            place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                place.mkdir(mode=0o700)
            reason = _exposed_above(place) or _exposed(place)
    except OSError as error:
        reason = f"it cannot be created ({error.strerror or error})"
    return place if reason is None else _private(place, reason)


def is_temporary() -> bool:
    """Whether files of this process were lost or went to a temporary folder, where no other process finds them."""
    with suppress(*UNKEPT):
        place = folder()
        return place in _own or place in _own.values()
    return True


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
    """Write a file to the cache, atomically; to a temporary folder if the cache cannot be written.

    Raises:
        OSError: if neither can be written, see `UNKEPT`.
    """
    stem, _, suffix = name.rpartition(".")
    place, file = folder(), f"{stem}.{_digest(content)}.{suffix}"
    try:
        return _written(place / file, content)
    except OSError as error:
        if place in _own.values():
            raise
        return _written(_private(place, f"it cannot be written ({error.strerror or error})") / file, content)


def _written(path: Path, content: bytes) -> Path:
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
        place = folder()
        for each in (place, _own[place]) if place in _own else (place,):
            for path in sorted(each.glob(f"{stem}.{'?' * DIGITS}.{suffix}")):
                content = _whole_file(path)
                if content is not None:
                    yield path, content


def _whole_file(path: Path) -> bytes | None:
    """The content of an intact file. Anything else in its place is removed, if that is possible."""
    with suppress(*UNKEPT):
        content = _content(path)
        if content is not None and _digest(content) == path.name.split(".")[-2]:
            return content
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return None


def _content(path: Path) -> bytes | None:
    """The content of a file, or None if it is a link or folder, or another user could have written it."""
    if path.is_symlink() or path.is_dir():
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
        f"expected {place} to be a folder that only this user can write to, but {reason}: kernels are compiled "
        "for this process only until you change that or set REMANENCE_CACHE to another folder",
        stacklevel=2,
    )
    return made


def _remove(made: Path, process: int) -> None:
    if os.getpid() == process:  # not in a fork
        shutil.rmtree(made, ignore_errors=True)
