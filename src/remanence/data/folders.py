"""The folders in which data sets are looked up and cached.

REMANENCE_DATA is a folder with one subfolder per data set, REMANENCE_CACHE replaces the default cache folder, and
REMANENCE_OFFLINE=1 disables downloads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from ..files import cache_folder
from .errors import DataError

_GIVEN: ContextVar[Path | None] = ContextVar("given", default=None)


@contextmanager
def looking_in(folder: Path) -> Iterator[None]:
    """A context in which this folder replaces REMANENCE_DATA."""
    if not folder.is_dir():
        raise DataError(f"expected a folder with one subfolder per data set, got {folder}; correct the path")
    before = _GIVEN.set(folder)
    try:
        yield
    finally:
        _GIVEN.reset(before)


def data_folder() -> Path | None:
    """The folder that REMANENCE_DATA points to, or None."""
    given = _GIVEN.get()
    if given is not None:
        return given
    chosen = os.environ.get("REMANENCE_DATA")
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise DataError(f"expected REMANENCE_DATA to be a folder, got {chosen}; correct it or unset it")
    return folder


def folders(name: str) -> list[Path]:
    """The folders of one data set, in search order."""
    own = data_folder()
    return [*([own / name] if own else []), cache_folder() / name]


def offline() -> bool:
    """Whether downloads are disabled."""
    return os.environ.get("REMANENCE_OFFLINE", "").strip().lower() not in ("", "0", "false", "no")
