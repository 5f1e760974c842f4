"""Writing to standard output and standard error, which may be closed, or full, or a terminal that obeys."""

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
    """Print text, with control characters in it written out."""
    typer.echo(printable(text), nl=nl, err=err)


def complain(message: object) -> None:
    """Say what is wrong, in one line on standard error."""
    echo(f"remanence: {' '.join(str(message).splitlines())}", err=True)


def open_what_is_closed() -> None:
    """Let closed standard streams lead nowhere: files that are opened later would take their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


@contextmanager
def answered_if_unwritable() -> Iterator[None]:
    """One sentence and exit code 2 where standard output takes no more."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:  # a file's, not a stream's
            raise
        _give_up(error)


def _give_up(error: OSError) -> NoReturn:
    with suppress(OSError):
        complain(f"expected to write to standard output, got: {error.strerror}")
        sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # or Python complains when it flushes them
        with suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    raise SystemExit(2) from None
