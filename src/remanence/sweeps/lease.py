"""Who works on what, agreed on through files alone: on a network file system locks may not hold, but names do.

A lease is a file that whoever makes it first has. Its owner touches it now and then; one that nobody has touched for
some time belonged to a process that is gone, and may be taken over. Times are those of the file system: clocks of
machines differ.
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
"""Seconds after which a lease that nobody has touched is free."""


class Lease:
    """A lease that is held, and touched in a thread of its own, until it is given back or lost.

    Args:
        path: of its file.
        owner: who has it.
        nonce: what is in the file, and in no other.
        seconds: after which it is free if nobody touches it.
    """

    def __init__(self, path: Path, owner: str, nonce: str, seconds: float = EXPIRES) -> None:
        self.path, self.owner, self.nonce, self.seconds = path, owner, nonce, seconds
        self.lost = False
        """Whether somebody else has it: this process was away for too long."""
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, when_lost: Callable[[], None]) -> None:
        """Touch it from now on."""

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
        """Others may have it."""
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if not self.lost and self._is_mine():
            self.path.unlink(missing_ok=True)

    def _is_mine(self) -> bool:
        found = look(self.path)
        return found is not None and found[1] in (self.nonce, UNREADABLE)  # a file system may fail for a moment


def take(path: Path, owner: str, seconds: float = EXPIRES) -> Lease | None:
    """A lease, if nobody has it.

    Args:
        path: of its file.
        owner: a name. Who has the same name takes over at once: its process before is known to be gone.
        seconds: after which a lease that nobody has touched is free.
    """
    nonce = secrets.token_hex(8)
    path.parent.mkdir(parents=True, exist_ok=True)
    if _make(path, owner, nonce):
        return Lease(path, owner, nonce, seconds)
    found = look(path)
    if found is None or not (found[0] == owner or age(path) > seconds):
        return None
    # Of several that see it expired one takes it over: whoever is first to say so of this very lease.
    right = _right(path, owner, nonce, found[1], seconds)
    if right is None:
        return None
    try:
        if look(path) != found or not (found[0] == owner or age(path) > seconds):
            return None
        files.write(path, _content(owner, nonce))
        for old in path.parent.glob(f"{glob.escape(path.name)}.after-{found[1]}-*"):  # of those who were killed
            old.unlink(missing_ok=True)
        return Lease(path, owner, nonce, seconds)
    finally:
        right.unlink(missing_ok=True)


def _right(path: Path, owner: str, nonce: str, last: str, seconds: float) -> Path | None:
    """The right to take over a lease, by its nonce; of somebody who was killed with it, another after some time."""
    for number in itertools.count():
        right = path.with_name(f"{path.name}.after-{last}-{number}")
        if _make(right, owner, nonce):
            return right
        if age(right) <= seconds:
            return None
    return None


def look(path: Path) -> tuple[str, str] | None:
    """Owner and nonce of a lease; None where there is none."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return str(found["owner"]), str(found["nonce"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return UNREADABLE, UNREADABLE  # somebody is about to write it, or was killed then


def is_held(path: Path, seconds: float = EXPIRES) -> bool:
    """Whether somebody has it."""
    return age(path) <= seconds


def age(path: Path) -> float:
    """Seconds since a file was touched, by the clock of the file system; by ours where one may only look."""
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
    """Make a file that was not there: whole, and by one alone."""
    temporary = path.with_name(f"{files.TEMPORARY}{secrets.token_hex(4)}-{path.name}")
    temporary.write_bytes(_content(owner, nonce))
    try:
        os.link(temporary, path)
        return True
    except FileExistsError:
        return False
    except OSError:  # no links there
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
