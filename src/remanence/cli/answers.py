"""What commands say, and where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


@contextmanager
def bad_input_is_answered() -> Iterator[None]:
    """One sentence and exit code 2 for what a user got wrong. Only what looks at the user's words belongs inside."""
    try:
        yield
    except ValueError as error:
        typer.echo(f"remanence: {error}", err=True)
        raise typer.Exit(2) from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """One sentence for a picture or a page that cannot be made or written."""
    try:
        yield
    except ImportError as error:
        raise ValueError(
            f"expected {error.name or 'what draws'} for {path}, got: {error}; pip install 'remanence[report]' brings it"
        ) from None
    except OSError as error:
        raise ValueError(f"expected to write {path}, got: {error.strerror or error}") from None


def split(words: list[str] | None) -> list[str]:
    """Names from options that may be repeated and may hold several, separated by commas."""
    return [name.strip() for word in words or [] for name in word.split(",") if name.strip()]
