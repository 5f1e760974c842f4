"""`remanence.files` for the folders of runs: what cannot be written is answered by a `RunError`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import files

Say = Callable[[str], None]


class RunError(ValueError):
    """Something about a run's directory that a person has to look at, in one sentence."""


class HeldError(RunError):
    """Another process trains there."""


def write(path: Path, content: bytes) -> None:
    """Put a file in place, all of it or nothing."""
    try:
        files.write(path, content)
    except OSError as error:
        raise cannot_write(path, error) from error


def append(path: Path, content: bytes, settled: bool = True) -> None:
    """Add to a file, and force that to disk unless it may be lost."""
    try:
        files.append(path, content, settled)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> RunError:
    """What to tell a person when a file cannot be written."""
    return RunError(
        f"expected to write {path}, got: {error.strerror or error}; "
        "what was saved before is whole, and the same command goes on from there once this is solved"
    )


DIGESTS = "SHA256SUMS"
DIGEST_LINE = re.compile(r"([0-9a-f]{64})  ([\w./-]+)")


def digest(content: bytes) -> str:
    """The digest of a file with this content."""
    return hashlib.sha256(content).hexdigest()


def known_digests(folder: Path) -> dict[str, str]:
    """Digests by name, empty where there is no list."""
    path = folder / DIGESTS
    try:
        lines = path.read_bytes().decode("ascii").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError):
        raise _unreadable(path) from None
    found = [DIGEST_LINE.fullmatch(line) for line in lines]
    names = {match[2]: match[1] for match in found if match is not None}
    if len(names) < len(lines):
        raise _unreadable(path)
    return names


def keep_digests(folder: Path, digests: Mapping[str, str]) -> None:
    """Write the list, unless it is there."""
    content = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())).encode()
    path = folder / DIGESTS
    if not path.is_file() or path.read_bytes() != content:
        write(path, content)


def read(folder: Path, name: str) -> bytes | None:
    """The content of a file; None where there is none and none is listed.

    Raises:
        RunError: it cannot be read, or is not as it was written.
    """
    path = folder / name
    expected = known_digests(folder).get(name)
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if expected is None:
            return None
        raise _changed(folder, name, "no such file") from None
    except OSError as error:
        raise RunError(f"expected a file {path}, got: {error.strerror or error}") from None
    if expected is not None and digest(content) != expected:
        raise _changed(folder, name, "a file whose digest is another: it was damaged or changed")
    return content


def expect_present(folder: Path, name: str) -> None:
    """Refuse a folder without a file that is listed."""
    if name in known_digests(folder) and not (folder / name).exists():
        raise _changed(folder, name, "no such file")


def _changed(folder: Path, name: str, got: str) -> RunError:
    remedy = "the command that made it restores it from its last checkpoint"
    if (folder / "result.json").exists():
        remedy = f"remove {folder / 'result.json'}, and {remedy}"
    return RunError(f"expected {folder / name} as {folder / DIGESTS} lists it, got {got}; {remedy}")


def _unreadable(path: Path) -> RunError:
    return RunError(f"expected digests of files in {path}, got a file that cannot be read; remove it to go on")


CHECK = "check"
DIGITS = 8
FIRST_CHECK = "0" * DIGITS
"""The check before the first line."""


def packed_line(line: dict[str, Any], before: str = FIRST_CHECK) -> tuple[bytes, str]:
    """A line as it is written after one with the check `before`, and its own check."""
    check = _check(line, before)
    return json.dumps({**line, CHECK: check}, allow_nan=False).encode() + b"\n", check


def read_lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """All lines of a file, without their checks; none where there is no file.

    A last line without its end is left out: a process that was killed may have written half of it.

    Raises:
        RunError: the file is damaged.
    """
    content = read(folder, name)
    if content is None:
        return []
    found, number = whole_lines(content)
    if number is not None:
        raise RunError(
            f"expected lines of JSON as they were written in {folder / name}, got a damaged line {number}; "
            "where the run has a checkpoint, the same `remanence run` restores them"
        )
    return found


def whole_lines(content: bytes) -> tuple[list[dict[str, Any]], int | None]:
    """Lines up to the first that is damaged, without their checks, and the number of that one, from 1 on."""
    found: list[dict[str, Any]] = []
    before: str | None = FIRST_CHECK
    for number, text in enumerate(content.split(b"\n")[:-1], 1):
        try:
            line = json.loads(text, parse_constant=no_number)
            check = line.pop(CHECK, None)
        except (ValueError, AttributeError, RecursionError):
            return found, number
        if number == 1 and check is None:
            before = None
        if check != (None if before is None else _check(line, before)):
            return found, number
        before = check
        found.append(line)
    return found, None


def packed_lines(found: Iterable[dict[str, Any]]) -> tuple[bytes, str]:
    """Lines as a file of their own, and the check of the last."""
    parts, check = [], FIRST_CHECK
    for line in found:
        part, check = packed_line(line, check)
        parts.append(part)
    return b"".join(parts), check


def no_number(word: str) -> Any:
    """Refuse NaN and infinities, which JSON does not know and Python reads."""
    raise ValueError(f"expected a number, got {word}")


def _check(line: dict[str, Any], before: str) -> str:
    return hashlib.sha256(f"{before}{json.dumps(line)}".encode()).hexdigest()[:DIGITS]


def now() -> str:
    """The present time, for people."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def as_json(content: dict[str, Any]) -> bytes:
    """Plain data as a file for people."""
    return (json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()
