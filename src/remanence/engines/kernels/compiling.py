"""While something is compiled: side by side, each kernel once, and with a word to who waits for it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

PATIENCE = 2.0
"""Seconds of compiling in this process after which it is told."""
MESSAGE = "remanence: compiling kernels (once)"

Value = TypeVar("Value")
_guard = threading.Lock()
_locks: dict[str, threading.Lock] = {}


def side_by_side(jobs: Sequence[Callable[[], Value]]) -> list[Value]:
    """What all of them return, done at once in threads: compilers run outside of Python. The first error is raised."""
    if len(jobs) < 2:
        return [job() for job in jobs]
    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = []
        for job in jobs:
            try:
                futures.append(pool.submit(job))
            except RuntimeError:  # no more threads, or the interpreter is about to end
                done: Future[Value] = Future()
                done.set_result(job())
                futures.append(done)
        return [future.result() for future in futures]


def begin(job: Callable[[], object]) -> None:
    """Do it in a thread while others go on. Who needs what comes of it will ask for it, and hear what went wrong."""

    def attempt() -> None:
        with suppress(Exception):
            job()

    with suppress(RuntimeError):  # no more threads: it is done when it is needed
        threading.Thread(target=attempt, name="remanence compiles").start()


@contextmanager
def by_one_thread(name: str) -> Iterator[None]:
    """Others that want the same wait, and find it done."""
    with _guard:
        lock = _locks.setdefault(name, threading.Lock())
    with lock:
        yield


class _Clock:
    """How long this process has compiled, and the timer that tells it."""

    def __init__(self) -> None:
        self.at_work = 0
        self.spent = 0.0
        self.since = 0.0
        self.told = False
        self.timer: threading.Timer | None = None

    def begin(self) -> None:
        self.at_work += 1
        if self.at_work == 1 and not self.told:
            self.since = time.monotonic()
            self.timer = threading.Timer(max(0.0, PATIENCE - self.spent), self.tell)
            self.timer.daemon = True
            with suppress(RuntimeError):
                self.timer.start()

    def end(self) -> None:
        self.at_work -= 1
        if self.at_work == 0 and self.timer is not None:
            self.timer.cancel()
            self.spent, self.timer = self.spent + time.monotonic() - self.since, None

    def tell(self) -> None:
        if not self.told and sys.stderr is not None and not os.environ.get("REMANENCE_QUIET"):
            print(MESSAGE, file=sys.stderr, flush=True)
        self.told = True


_clock = _Clock()


@contextmanager
def told() -> Iterator[None]:
    """Something is compiled meanwhile: one line on stderr says so, once, if it takes long."""
    with _guard:
        _clock.begin()
    try:
        yield
    finally:
        with _guard:
            _clock.end()


def _begin_anew() -> None:
    """After a fork: locks that another thread had are held by nobody."""
    global _guard, _clock
    _guard, _clock = threading.Lock(), _Clock()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
