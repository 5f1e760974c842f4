"""Stopping without loss: signals, and a budget of time."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from .ranks import Ranks


class Stopped(Exception):  # noqa: N818  not an error
    """Training was asked to stop, and has saved everything.

    Attributes:
        reason: a sentence for the person who reads it.
        code: what the command exits with: 0 for a spent budget, else 128 + the number of the signal.
    """

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class Budget:
    """Wall-clock time that may be used, counted from when the budget is made.

    Args:
        seconds: None for as long as it takes.
    """

    def __init__(self, seconds: float | None = None) -> None:
        if seconds is not None and not seconds > 0:
            raise ValueError(f"expected a budget of more than 0 seconds, got {seconds}")
        self.seconds = seconds
        self._start = time.monotonic()

    @classmethod
    def parse(cls, text: str) -> Budget:
        """A budget from words such as 90s, 9m, 2h or 1h30m; a number alone is seconds."""
        parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip().lower())
        seconds = sum(float(part or 0) * unit for part, unit in zip(parts.groups(), (3600, 60, 1))) if parts else 0.0  # noqa: B905
        if seconds <= 0:
            raise ValueError(f"expected a budget such as 90s, 9m or 1h30m, got {text!r}")
        return cls(seconds)

    @property
    def left(self) -> float:
        """Seconds that are left; infinite without a limit."""
        return float("inf") if self.seconds is None else self.seconds - (time.monotonic() - self._start)


@contextmanager
def on_signals(
    handler: Any, numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM), *, once: bool = False
) -> Iterator[None]:
    """Let signals do something else.

    Args:
        handler: what they do, as `signal.signal` takes it.
        numbers: which signals.
        once: whether only the first of them does it; the next does what it did before. Takes a function for `handler`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone
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
    """Whether to stop before the next piece of work.

    The time that each kind of work took lately is kept in reserve.

    Args:
        budget: how long it may take.
        ranks: those who stop together; each asks the same questions, and all get the same answers.
    """

    def __init__(self, budget: Budget, ranks: Ranks | None = None) -> None:
        self.budget = budget
        self.ranks = ranks or Ranks()
        self.signal: signal.Signals | None = None
        self._lately = {"update": 0.0, "evaluation": 0.0, "saving": 0.0}
        self._since: float | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM ask for a stop. A second one stops at once, as if nobody had listened."""

        def asked(number: int, frame: FrameType | None) -> None:
            self.signal = signal.Signals(number)

        with on_signals(asked, once=True):
            yield

    def after_update(self) -> None:
        """An update is done. What the first of a stretch took is no measure: it may have compiled something."""
        now = time.monotonic()
        if self._since is not None:
            self._took("update", now - self._since)
        self._since = now

    @contextmanager
    def timed(self, work: str) -> Iterator[None]:
        """Remember how long some work took."""
        start = time.monotonic()
        yield
        self._took(work, time.monotonic() - start)
        self._since = None

    def _took(self, work: str, seconds: float) -> None:
        self._lately[work] = max(seconds, 0.9 * self._lately[work])  # an outlier is forgotten in time

    def wanted(self, work: str) -> bool:
        """Whether to stop instead of doing this work next."""
        return self._agreed(self._is_spent(work)) > 0

    def signalled(self) -> bool:
        """Whether a signal has asked for a stop."""
        return self._agreed(False) > 0

    def _is_spent(self, work: str) -> bool:
        """Whether the budget does not last for this work."""
        if self.budget.seconds is None:
            return False
        reserve = min(0.5, self.budget.seconds / 4) + self._lately[work] + 2 * self._lately["saving"]
        return self.budget.left < reserve

    def _agreed(self, spent: bool) -> int:
        """What any rank has to stop for: 0 for nothing, 1 for the budget, 1 + the number of a signal."""
        found = self.ranks.highest(int(spent) if self.signal is None else 1 + self.signal)
        if found > 1:
            self.signal = signal.Signals(found - 1)
        return found

    def stop(self, where: str) -> Stopped:
        """What to raise once everything is saved."""
        if self.signal is not None:
            return Stopped(f"stopped by {self.signal.name} {where}; the same command goes on", 128 + self.signal)
        return Stopped(f"the budget of {self.budget.seconds:g} s is spent {where}; the same command goes on", 0)
