"""Compiling kernels in parallel, each only once, with a message if it takes long."""

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
"""Seconds spent on compilation in this process before the message is printed."""
MESSAGE = "remanence: compiling kernels (once)"

Value = TypeVar("Value")
_guard = threading.Lock()
_locks: dict[str, threading.Lock] = {}


def side_by_side(jobs: Sequence[Callable[[], Value]]) -> list[Value]:
    """Run all jobs in threads and return their results. Compilers run outside of Python. Raises the first error."""
    if len(jobs) < 2:
        return [job() for job in jobs]
    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = []
        for job in jobs:
            try:
                futures.append(pool.submit(job))
            except RuntimeError:  # no more threads, or the interpreter is shutting down
                done: Future[Value] = Future()
                done.set_result(job())
                futures.append(done)
        return [future.result() for future in futures]


def begin(job: Callable[[], object]) -> None:
    """Start a job in a background thread. Its errors are ignored: the caller that needs the result sees them again."""

    def attempt() -> None:
        with suppress(Exception):
            job()

    with suppress(RuntimeError):  # no more threads: the job runs when its result is needed
        threading.Thread(target=attempt, name="remanence compiles").start()


@contextmanager
def by_one_thread(name: str) -> Iterator[None]:
    """Serialise threads that compile the same kernel: the others wait and find it compiled."""
    with _guard:
        lock = _locks.setdefault(name, threading.Lock())
    with lock:
        yield


class _Clock:
    """Time that this process has spent compiling, and the timer that prints the message."""

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
    """Wrap a compilation: prints one line to stderr, once per process, if compiling takes long."""
    with _guard:
        _clock.begin()
    try:
        yield
    finally:
        with _guard:
            _clock.end()


def _begin_anew() -> None:
    """Reset the locks after a fork: the threads that held them do not exist in the child."""
    global _guard, _clock
    _guard, _clock = threading.Lock(), _Clock()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
