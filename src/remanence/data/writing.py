"""Atomic writes of data files, which raise a `DataError` if they fail, and files that are made once and cached."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import files
from ..files import cache_folder
from .errors import DataError

UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EEXIST, errno.ENOTDIR}


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, with the same suffix. It is renamed to `path` on success, else removed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.whole(path) as temporary:
            yield temporary
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        raise DataError(
            f"expected {path.parent} to be a writable folder, got: {error.strerror}; "
            "set REMANENCE_CACHE to another folder or free disk space"
        ) from None


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """A file in the cache folder that is made once.

    Args:
        name: its path inside the cache folder. It must encode everything the content depends on.
        make: writes the content to the given path, which has the same suffix. An exception leaves no file behind.
    """
    inside = Path(name)
    if inside.is_absolute() or ".." in inside.parts or not inside.name:
        raise ValueError(f"expected the name of a cached file to stay inside the cache folder, got {name!r}")
    path = cache_folder() / inside
    if not path.exists():
        with writing(path) as temporary:
            make(temporary)
    return path
