"""Digests of the files of a folder, in `SHA256SUMS`: `sha256sum -c SHA256SUMS` verifies them, too.

Whatever trusts a file reads it through `read`, which refuses one that is not as it was written. A file that is not
listed is read as it is: folders of earlier versions have no list.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from . import files
from .files import RunError

NAME = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  ([\w./-]+)")


def digest(content: bytes) -> str:
    """The digest of a file with this content."""
    return hashlib.sha256(content).hexdigest()


def known(folder: Path) -> dict[str, str]:
    """Digests by name, empty where there is no list."""
    path = folder / NAME
    try:
        lines = path.read_bytes().decode("ascii").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError):
        raise _unreadable(path) from None
    found = [LINE.fullmatch(line) for line in lines]
    names = {match[2]: match[1] for match in found if match is not None}
    if len(names) < len(lines):
        raise _unreadable(path)
    return names


def keep(folder: Path, digests: Mapping[str, str]) -> None:
    """Write the list, unless it is there."""
    content = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())).encode()
    path = folder / NAME
    if not path.is_file() or path.read_bytes() != content:
        files.write(path, content)


def read(folder: Path, name: str) -> bytes | None:
    """The content of a file; None where there is none and none is listed.

    Raises:
        RunError: it cannot be read, or is not as it was written.
    """
    path = folder / name
    expected = known(folder).get(name)
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
    if name in known(folder) and not (folder / name).exists():
        raise _changed(folder, name, "no such file")


def _changed(folder: Path, name: str, got: str) -> RunError:
    remedy = "the command that made it restores it from its last checkpoint"
    if (folder / "result.json").exists():
        remedy = f"remove {folder / 'result.json'}, and {remedy}"
    return RunError(f"expected {folder / name} as {folder / NAME} lists it, got {got}; {remedy}")


def _unreadable(path: Path) -> RunError:
    return RunError(f"expected digests of files in {path}, got a file that cannot be read; remove it to go on")
