"""Output on stdout and stderr, also when they are closed, full, or a terminal that interprets control characters."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import typer

from ..printable import printable

UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print text with control characters escaped."""
    typer.echo(printable(text), nl=nl, err=err)


def print_error(message: object) -> None:
    """Print an error as one line on stderr."""
    echo(f"remanence: {' '.join(str(message).splitlines())}", err=True)


def reopen_closed_streams() -> None:
    """Redirect closed standard streams to the null device; otherwise files opened later get descriptors 0 to 2."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


@contextmanager
def exit_if_unwritable() -> Iterator[None]:
    """Report failed writes to stdout in one sentence and exit with code 2."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:  # the error of a file, not of a stream
            raise
        _give_up(error)


def _give_up(error: OSError) -> NoReturn:
    with suppress(OSError):
        print_error(f"expected to write to standard output, got: {error.strerror}")
        sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # otherwise Python reports an error when it flushes them at exit
        with suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    raise SystemExit(2) from None
