"""What commands say, and where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def bad_input_is_answered() -> Iterator[None]:
    """One sentence and exit code 2 for what a user got wrong. Only what looks at the user's words belongs inside."""
    try:
        yield
    except ValueError as error:
        typer.echo(f"remanence: {error}", err=True)
        raise typer.Exit(2) from None


def split(words: list[str] | None) -> list[str]:
    """Names from options that may be repeated and may hold several, separated by commas."""
    return [name.strip() for word in words or [] for name in word.split(",") if name.strip()]
