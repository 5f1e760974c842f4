"""Writing and verifying the files of a run folder. File system errors become a `RunError`.

`SHA256SUMS` holds the digests of a folder's files; `sha256sum -c SHA256SUMS` verifies them, too. `read` refuses a file
whose digest does not match.

Every line of a JSON lines file ends with "check", a digest of the line and of the check before it. This detects a
changed byte or a missing line while the file still grows.

The copies of finished runs in results/ (`experiments.collecting`) have neither digests nor checks: lines are left out,
and git protects the copies. So a file without a digest is read without verification, and lines without checks are
accepted.
"""

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
"""Shows a message to the user."""


class RunError(ValueError):
    """A problem with a run folder that the user has to fix, in one sentence."""


class HeldError(RunError):
    """Another process trains in this folder."""


def write(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    try:
        files.write(path, content)
    except OSError as error:
        raise cannot_write(path, error) from error


def append(path: Path, content: bytes, settled: bool = True) -> None:
    """Append to a file; with `settled`, flush it to disk."""
    try:
        files.append(path, content, settled)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> RunError:
    """The error for a file that cannot be written."""
    return RunError(
        f"expected to write {path}, got: {error.strerror or error}; "
        "earlier checkpoints are intact, so fix this and run the same command again to resume"
    )


DIGESTS = "SHA256SUMS"
DIGEST_LINE = re.compile(r"([0-9a-f]{64})  ([\w./-]+)")


def digest(content: bytes) -> str:
    """The SHA-256 digest of this content."""
    return hashlib.sha256(content).hexdigest()


def known_digests(folder: Path) -> dict[str, str]:
    """Digests by file name; empty without a `SHA256SUMS`."""
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
    """Write `SHA256SUMS`, unless it has this content."""
    content = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())).encode()
    path = folder / DIGESTS
    if not path.is_file() or path.read_bytes() != content:
        write(path, content)


def read(folder: Path, name: str) -> bytes | None:
    """The verified content of a file; None if it does not exist and has no digest.

    Raises:
        RunError: The file cannot be read, or does not match its digest.
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
        raise _changed(folder, name, "a file with another digest, which was damaged or changed")
    return content


def expect_best(folder: Path) -> None:
    """Raise a `RunError` if the best weights have a digest but do not exist."""
    name = "checkpoints/best.safetensors"
    if name in known_digests(folder) and not (folder / name).exists():
        raise _changed(folder, name, "no such file")


def _changed(folder: Path, name: str, got: str) -> RunError:
    remedy = "run the command that wrote it again to restore it from the last checkpoint"
    if (folder / "result.json").exists():
        remedy = f"remove {folder / 'result.json'} and {remedy}"
    return RunError(f"expected {folder / name} to match its digest in {folder / DIGESTS}, got {got}; {remedy}")


def _unreadable(path: Path) -> RunError:
    return RunError(f"expected SHA-256 digests in {path}, got a file that cannot be read; remove it to continue")


CHECK = "check"
DIGITS = 8
FIRST_CHECK = "0" * DIGITS
"""The check before the first line."""


def packed_line(line: dict[str, Any], before: str = FIRST_CHECK) -> tuple[bytes, str]:
    """The bytes of a line that follows one with the check `before`, and its own check."""
    check = _check(line, before)
    return json.dumps({**line, CHECK: check}, allow_nan=False).encode() + b"\n", check


def read_lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """All lines of a file, without their checks; empty if the file does not exist.

    An incomplete last line is ignored: a process may have been killed while it wrote the line.

    Raises:
        RunError: The file is damaged.
    """
    content = read(folder, name)
    if content is None:
        return []
    found, number = whole_lines(content)
    if number is not None:
        raise RunError(
            f"expected intact JSON lines in {folder / name}, got a damaged line {number}; "
            "if the run has a checkpoint, the same `remanence run` command restores them"
        )
    return found


def whole_lines(content: bytes) -> tuple[list[dict[str, Any]], int | None]:
    """Lines before the first damaged one, without their checks, and the number of the damaged line, from 1."""
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
    """The bytes of a file with these lines, and the check of the last line."""
    parts, check = [], FIRST_CHECK
    for line in found:
        part, check = packed_line(line, check)
        parts.append(part)
    return b"".join(parts), check


def no_number(word: str) -> Any:
    """Refuse NaN and infinity, which Python reads but JSON does not allow."""
    raise ValueError(f"expected a number, got {word}")


def _check(line: dict[str, Any], before: str) -> str:
    return hashlib.sha256(f"{before}{json.dumps(line)}".encode()).hexdigest()[:DIGITS]


def now() -> str:
    """The current time in UTC, human-readable."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def as_json(content: dict[str, Any]) -> bytes:
    """Plain data as a human-readable JSON file."""
    return (json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()
