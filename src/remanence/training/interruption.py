"""Stopping without losing work: signals, a time budget, processes that save first."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from .ranks import Ranks


class Stopped(Exception):  # noqa: N818  not an error
    """Training was requested to stop, and has saved everything.

    Attributes:
        reason: One sentence for the user.
        code: Exit code of the command: 0 for a spent budget, 128 + signal number for a signal.
    """

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class Budget:
    """A wall-clock time limit, counted from the creation of this object.

    Args:
        seconds: Time limit; None for no limit.
    """

    def __init__(self, seconds: float | None = None) -> None:
        if seconds is not None and not seconds > 0:
            raise ValueError(f"expected a budget of more than 0 seconds, got {seconds}")
        self.seconds = seconds
        self._start = time.monotonic()

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Parse a budget such as 90s, 9m, 2h or 1h30m; a plain number is seconds."""
        parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip().lower())
        seconds = sum(float(part or 0) * unit for part, unit in zip(parts.groups(), (3600, 60, 1))) if parts else 0.0  # noqa: B905
        if seconds <= 0:
            raise ValueError(f"expected a budget such as 90s, 9m or 1h30m, got {text!r}")
        return cls(seconds)

    @property
    def left(self) -> float:
        """Seconds left; infinite without a limit."""
        return float("inf") if self.seconds is None else self.seconds - (time.monotonic() - self._start)


def stop_processes(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Let processes save their state and exit; kill those that take longer than `seconds`."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    limit = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0.1, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def on_signals(
    handler: Any, numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM), *, once: bool = False
) -> Iterator[None]:
    """Temporarily install a signal handler; the previous handlers are restored afterwards.

    Args:
        handler: Handler, as for `signal.signal`.
        numbers: Signals to handle.
        once: Whether to restore the previous handlers after the first signal. `handler` must then be a function.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals only to the main thread
        return
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, old in before.items():
            signal.signal(number, old)

    def first(number: int, frame: FrameType | None) -> None:
        handler(number, frame)
        restore()

    for number in before:
        signal.signal(number, first if once else handler)
    try:
        yield
    finally:
        restore()


class Interruption:
    """Decides whether to stop before the next piece of work.

    Reserves the time that each kind of work took recently.

    Args:
        budget: Time limit.
        ranks: Ranks that stop together. All make the same calls and get the same answers.
    """

    def __init__(self, budget: Budget, ranks: Ranks | None = None) -> None:
        self.budget = budget
        self.ranks = ranks or Ranks()
        self.signal: signal.Signals | None = None
        self.loops = 1
        """Loops that save before training stops."""
        self._lately = {"update": 0.0, "evaluation": 0.0, "saving": 0.0}
        self._since: float | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Treat SIGINT and SIGTERM as requests to stop. A second signal stops at once, with the previous handler."""

        def asked(number: int, frame: FrameType | None) -> None:
            self.signal = signal.Signals(number)

        with on_signals(asked, once=True):
            yield

    def after_update(self) -> None:
        """Time an update. The first after a pause is not counted because it may have compiled something."""
        now = time.monotonic()
        if self._since is not None:
            self._took("update", now - self._since)
        self._since = now

    @contextmanager
    def timed(self, work: str) -> Iterator[None]:
        """Measure how long some work takes."""
        start = time.monotonic()
        yield
        self._took(work, time.monotonic() - start)
        self._since = None

    def _took(self, work: str, seconds: float) -> None:
        self._lately[work] = max(seconds, 0.9 * self._lately[work])  # outliers decay

    def wanted(self, work: str) -> bool:
        """Whether to stop before this work."""
        return self._agreed(self._is_spent(work)) > 0

    def signalled(self) -> bool:
        """Whether a signal requested a stop."""
        return self._agreed(False) > 0

    def _is_spent(self, work: str) -> bool:
        """Whether the budget is too short for this work."""
        if self.budget.seconds is None:
            return False
        reserve = min(0.5, self.budget.seconds / 4) + self._lately[work] + (1 + self.loops) * self._lately["saving"]
        return self.budget.left < reserve

    def _agreed(self, spent: bool) -> int:
        """The reason of any rank to stop: 0 for none, 1 for the budget, 1 + signal number for a signal."""
        found = self.ranks.highest(int(spent) if self.signal is None else 1 + self.signal)
        if found > 1:
            self.signal = signal.Signals(found - 1)
        return found

    def stop(self, where: str) -> Stopped:
        """The exception to raise once everything is saved."""
        if self.signal is not None:
            return Stopped(
                f"stopped by {self.signal.name} {where}; run the same command again to resume", 128 + self.signal
            )
        return Stopped(
            f"the budget of {self.budget.seconds:g} s is spent {where}; run the same command again to resume", 0
        )
