"""What commands say, and where; and what they are told."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from .output import complain

if TYPE_CHECKING:
    from ..training import Ranks

MOST = 10_000
"""Seeds in a range: more are a slip of the hand."""


@contextmanager
def bad_input_is_answered(ranks: Ranks | None = None) -> Iterator[None]:
    """One sentence and exit code 2 for what a user got wrong. Only what looks at the user's words belongs inside."""
    try:
        yield
    except ValueError as error:
        refuse(error, ranks)


def refuse(error: ValueError, ranks: Ranks | None = None) -> NoReturn:
    """Say what is wrong and exit with code 2; of several processes that have all heard of it, the first one says it."""
    agreed = ranks is not None and ranks.agreed(error)
    if ranks is None or ranks.first or not agreed:
        complain(error)
    if ranks is not None and agreed:
        ranks.leave()
    raise typer.Exit(2) from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """One sentence for a picture or a page that cannot be made or written."""
    try:
        yield
    except ImportError as error:
        raise ValueError(
            f"expected {error.name or 'what draws'} for {path}, got: {error}; "
            "pip install 'remanence-rnn[report]' brings it"
        ) from None
    except OSError as error:
        raise ValueError(f"expected to write {path}, got: {error.strerror or error}") from None


def split(words: list[str] | None) -> list[str]:
    """Names from options that may be repeated and may hold several, separated by commas."""
    return [name.strip() for word in words or [] for name in word.split(",") if name.strip()]


def read_seeds(words: str | None) -> list[int]:
    """1,2,3 or 1-5, or both mixed."""
    seeds: list[int] = []
    for part in split([words] if words else None):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise ValueError(f"expected seeds such as 1,2,3 or 1-5, got {words!r}")
        if last >= 2**32 or last - first >= MOST:
            raise ValueError(f"expected at most {MOST} seeds, each below 2**32, got {words!r}")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


def expect_alone() -> None:
    """Refuse to be one of several processes that torchrun has started: they would all do the same."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size.isdigit() and int(size) > 1:
        raise ValueError(
            f"expected one process, got one of {size} (WORLD_SIZE, as torchrun sets it): torchrun is for "
            "`remanence run`, and a sweep starts processes of its own"
        )
