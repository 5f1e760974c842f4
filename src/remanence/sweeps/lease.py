"""Leases: which process works on which unit, agreed on through files, without file locks.

On a network file system, locks may not work, but creating a file is atomic. The process that creates the lease file
owns the lease and touches the file periodically. If nobody has touched it for some time, its process is gone, and
another may take it over. All times are those of the file system because the clocks of machines differ.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .. import files

UNREADABLE = ""
"""Owner and nonce of a lease that cannot be read."""
EXPIRES = 60.0
"""Seconds without a touch after which a lease expires."""


class Lease:
    """A lease that this process holds. A background thread touches it until it is given back or lost.

    Args:
        path: Path of the lease file.
        owner: Owner of the lease.
        nonce: Unique content of the file.
        seconds: Seconds without a touch after which it expires.
    """

    def __init__(self, path: Path, owner: str, nonce: str, seconds: float = EXPIRES) -> None:
        self.path, self.owner, self.nonce, self.seconds = path, owner, nonce, seconds
        self.lost = False
        """Whether another process took it over because this one did not touch it in time."""
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, when_lost: Callable[[], None]) -> None:
        """Start to touch it periodically; call `when_lost` if another process takes it over."""

        def touch() -> None:
            while not self._over.wait(self.seconds / 4):
                if not self._is_mine():
                    self.lost = True
                    when_lost()
                    return
                with suppress(OSError):
                    os.utime(self.path)

        self._thread = threading.Thread(target=touch, name=f"lease of {self.path.name}", daemon=True)
        self._thread.start()

    def give_back(self) -> None:
        """Release the lease."""
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if not self.lost and self._is_mine():
            self.path.unlink(missing_ok=True)

    def _is_mine(self) -> bool:
        found = look(self.path)
        return found is not None and found[1] in (self.nonce, UNREADABLE)  # the file system may fail temporarily


def take(path: Path, owner: str, seconds: float = EXPIRES) -> Lease | None:
    """Take a lease; None if another process holds it.

    Args:
        path: Path of the lease file.
        owner: Name of the owner. A lease with the same owner is taken over at once: its previous process is gone.
        seconds: Seconds without a touch after which a lease expires.
    """
    nonce = secrets.token_hex(8)
    path.parent.mkdir(parents=True, exist_ok=True)
    if _make(path, owner, nonce):
        return Lease(path, owner, nonce, seconds)
    found = look(path)
    if found is None or not (found[0] == owner or age(path) > seconds):
        return None
    # If several processes see it expired, the first to claim this very lease takes it over.
    right = _right(path, owner, nonce, found[1], seconds)
    if right is None:
        return None
    try:
        if look(path) != found or not (found[0] == owner or age(path) > seconds):
            return None
        files.write(path, _content(owner, nonce))
        for old in path.parent.glob(f"{glob.escape(path.name)}.after-{found[1]}-*"):  # claims of killed processes
            old.unlink(missing_ok=True)
        return Lease(path, owner, nonce, seconds)
    finally:
        right.unlink(missing_ok=True)


def _right(path: Path, owner: str, nonce: str, last: str, seconds: float) -> Path | None:
    """Claim the right to take over the lease with the nonce `last`; claims of killed processes expire as well."""
    for number in itertools.count():
        right = path.with_name(f"{path.name}.after-{last}-{number}")
        if _make(right, owner, nonce):
            return right
        if age(right) <= seconds:
            return None
    return None


def look(path: Path) -> tuple[str, str] | None:
    """Owner and nonce of a lease; None if it does not exist."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return str(found["owner"]), str(found["nonce"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return UNREADABLE, UNREADABLE  # being written, or its process was killed while writing


def is_held(path: Path, seconds: float = EXPIRES) -> bool:
    """Whether the lease is held and has not expired."""
    return age(path) <= seconds


def age(path: Path) -> float:
    """Seconds since a file was touched, by the clock of the file system; by the local clock if it is read-only."""
    probe = path.with_name(f"{files.TEMPORARY}{secrets.token_hex(4)}-now")
    try:
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink(missing_ok=True)
    except OSError:
        now = time.time()
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _make(path: Path, owner: str, nonce: str) -> bool:
    """Create a file atomically; False if it exists."""
    temporary = path.with_name(f"{files.TEMPORARY}{secrets.token_hex(4)}-{path.name}")
    temporary.write_bytes(_content(owner, nonce))
    try:
        os.link(temporary, path)
        return True
    except FileExistsError:
        return False
    except OSError:  # the file system has no hard links
        try:
            with path.open("xb") as file:
                file.write(_content(owner, nonce))
            return True
        except FileExistsError:
            return False
    finally:
        temporary.unlink(missing_ok=True)


def _content(owner: str, nonce: str) -> bytes:
    return json.dumps({"owner": owner, "nonce": nonce}).encode() + b"\n"
