"""Parsing of command-line values, and one-sentence answers to wrong ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from .output import echo, print_error

if TYPE_CHECKING:
    from ..training import Ranks

MOST = 10_000
"""Most seeds in a range; a longer range is probably a typing error."""


@contextmanager
def exit_on_bad_input(ranks: Ranks | None = None) -> Iterator[None]:
    """Turn a ValueError into one sentence and exit code 2. Use it only around code that validates user input."""
    try:
        yield
    except ValueError as error:
        refuse(error, ranks)


@contextmanager
def exit_on_error(ranks: Ranks | None = None) -> Iterator[None]:
    """Turn errors of files, configuration or device memory into one sentence and exit code 2."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        problem = str(error).partition(". ")[0]
        echo(
            f"remanence: expected a model and a batch that fit into device memory, got: {problem}; "
            "train fewer seeds at a time (--together) or reduce train.batch",
            err=True,
        )
        raise typer.Exit(2) from None
    except ValueError as error:
        if not str(error).startswith("expected "):  # our own messages do; anything else is a bug
            raise
        refuse(error, ranks)


@contextmanager
def exit_on_launch_error() -> Iterator[None]:
    """Exit with one sentence and code 2 if a launcher cannot start; Ctrl-C is not an error."""
    try:
        yield
    except KeyboardInterrupt:
        echo("remanence: stopped; run the same command again to resume", err=True)
        raise typer.Exit(130) from None
    except ValueError as error:
        if not str(error).startswith("expected "):
            raise
        refuse(error)


def refuse(error: ValueError, ranks: Ranks | None = None) -> NoReturn:
    """Print the error and exit with code 2. If all ranks raise the same error, only the first one prints it."""
    agreed = ranks is not None and ranks.agreed(error)
    if ranks is None or ranks.first or not agreed:
        print_error(error)
    if ranks is not None and agreed:
        ranks.leave()
    raise typer.Exit(2) from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of drawing or writing a figure or an HTML page into one sentence."""
    try:
        yield
    except ImportError as error:
        raise ValueError(
            f"expected {error.name or 'a plotting library'} to write {path}, got: {error}; "
            "install it with pip install 'remanence-rnn[report]'"
        ) from None
    except OSError as error:
        raise ValueError(f"expected to write {path}, got: {error.strerror or error}") from None


def split(words: list[str] | None) -> list[str]:
    """Split the values of a repeatable option at commas."""
    return [name.strip() for word in words or [] for name in word.split(",") if name.strip()]


def read_seeds(words: str | None) -> list[int]:
    """Parse seeds: 1,2,3 or 1-5, or a mix of both."""
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


def expect_single_process() -> None:
    """Refuse to run as one of several torchrun processes, which would all do the same work."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size.isdigit() and int(size) > 1:
        raise ValueError(
            f"expected a single process, got one of {size} (WORLD_SIZE, set by torchrun): use torchrun with "
            "`remanence run` only; a sweep starts its own processes"
        )
