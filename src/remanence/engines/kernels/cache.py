"""What was compiled or found out once, kept on disk: nothing else reads or writes `kernels` of the cache folder.

What is kept runs as the user when it is loaded. So the folder is the user's alone, and one that others may write to is
not used. The name of a file ends with the digest of its content: a file that is cut short or damaged is not there, and
of two processes that write the same at once neither sees half of it.
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
"""A home that cannot be written to, or a user without one: what is not kept is compiled again the next time."""
OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""Permission for others to write."""
DIGITS = 40


def folder() -> Path:
    """Where things are kept, for this user alone: a folder of this process where that of the cache is not private."""
    place = cache_folder() / "kernels"
    reason = _exposed_above(place)  # before anything is made there
    if reason is None:
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)
        reason = _exposed_above(place) or _exposed(place)
    return place if reason is None else _private(place, reason)


def file_name(parts: Iterable[str], suffix: str) -> str:
    """Of what is made of all this."""
    return f"{_digest(chr(10).join(parts).encode())}.{suffix}"


def find(name: str) -> Path | None:
    """The file that was kept under a name, if it is as it was written; one that is not is removed."""
    return next((path for path, _ in _whole_files(name)), None)


def read(name: str) -> bytes | None:
    """The content that was kept under a name, if it is as it was written."""
    return next((content for _, content in _whole_files(name)), None)


def keep(name: str, content: bytes) -> Path:
    """Keep a file under a name, all of it or nothing.

    Raises:
        OSError, RuntimeError: where nothing can be kept, see `UNKEPT`.
    """
    stem, _, suffix = name.rpartition(".")
    path = folder() / f"{stem}.{_digest(content)}.{suffix}"
    with whole(path) as temporary:
        temporary.touch(0o600)
        temporary.write_bytes(content)
    return path


def count(*suffixes: str) -> int:
    """How many files with these endings there are."""
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
    """What is in a file that nobody else can have written."""
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
    """Whether only this user can have written it."""
    return found.st_uid == os.geteuid() and not found.st_mode & OTHERS


def _exposed(place: Path) -> str | None:
    """Why others may have put something there, as the end of a sentence."""
    if os.name != "posix":
        return None
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "it is a link or a file"
    if not _is_own(found):
        return "it belongs to another user" if found.st_uid != os.geteuid() else "others may write to it"
    return None


def _exposed_above(place: Path) -> str | None:
    """Why others may put another folder in its place: they may write to one above that is not sticky."""
    if os.name != "posix":
        return None
    path, real = place.absolute(), place.parent.resolve() / place.name
    for above in dict.fromkeys((*path.parents, *real.parents)):  # where links lead to, too
        with suppress(FileNotFoundError):
            found = above.stat()
            writes = OTHERS if above in (path.parent, real.parent) else stat.S_IWOTH  # others' groups are the system's
            if found.st_uid not in (0, os.geteuid()):
                return f"{above} belongs to another user"
            if found.st_mode & writes and not found.st_mode & stat.S_ISVTX:
                return f"others may write to {above}"
    return None


_own: dict[Path, Path] = {}
_guard = threading.Lock()


def _private(place: Path, reason: str) -> Path:
    """A folder in its place that is gone when this process is."""
    with _guard:
        if place in _own:
            return _own[place]
        made = _own[place] = Path(tempfile.mkdtemp(prefix="remanence-"))
    atexit.register(_remove, made, os.getpid())
    warnings.warn(
        f"expected {place} to be a folder that only this user can write to, but {reason}: kernels are compiled anew in "
        "every process until it is removed or REMANENCE_CACHE names another place",
        stacklevel=2,
    )
    return made


def _remove(made: Path, process: int) -> None:
    if os.getpid() == process:  # and not a fork of it
        shutil.rmtree(made, ignore_errors=True)
