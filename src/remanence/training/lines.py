"""JSON lines that show damage: each ends with "check", a digest of the line and of the check before it.

So a changed byte and a line that is missing between others are found while a file still grows. Lines without checks,
as earlier versions wrote them, are read as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import digests
from .files import RunError

KEY = "check"
DIGITS = 8
START = "0" * DIGITS
"""The check before the first line."""


def packed(line: dict[str, Any], before: str = START) -> tuple[bytes, str]:
    """A line as it is written after one with the check `before`, and its own check."""
    check = _check(line, before)
    return json.dumps({**line, KEY: check}, allow_nan=False).encode() + b"\n", check


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    """All lines of a file, without their checks; none where there is no file.

    A last line without its end is left out: a process that was killed may have written half of it.

    Raises:
        RunError: the file is damaged.
    """
    content = digests.read(folder, name)
    if content is None:
        return []
    found, number = whole(content)
    if number is not None:
        raise RunError(
            f"expected lines of JSON as they were written in {folder / name}, got a damaged line {number}; "
            "where the run has a checkpoint, the same `remanence run` restores them"
        )
    return found


def whole(content: bytes) -> tuple[list[dict[str, Any]], int | None]:
    """Lines up to the first that is damaged, without their checks, and the number of that one, from 1 on."""
    found: list[dict[str, Any]] = []
    before: str | None = START
    for number, text in enumerate(content.split(b"\n")[:-1], 1):
        try:
            line = json.loads(text, parse_constant=no_number)
            check = line.pop(KEY, None)
        except (ValueError, AttributeError, RecursionError):
            return found, number
        if number == 1 and check is None:
            before = None
        if check != (None if before is None else _check(line, before)):
            return found, number
        before = check
        found.append(line)
    return found, None


def all_packed(found: Iterable[dict[str, Any]]) -> tuple[bytes, str]:
    """Lines as a file of their own, and the check of the last."""
    parts, check = [], START
    for line in found:
        part, check = packed(line, check)
        parts.append(part)
    return b"".join(parts), check


def no_number(word: str) -> Any:
    """Refuse NaN and infinities, which JSON does not know and Python reads."""
    raise ValueError(f"expected a number, got {word}")


def _check(line: dict[str, Any], before: str) -> str:
    return hashlib.sha256(f"{before}{json.dumps(line)}".encode()).hexdigest()[:DIGITS]
