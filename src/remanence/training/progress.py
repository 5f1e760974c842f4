"""Progress displays."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from ..printable import printable
from .config import Run

if TYPE_CHECKING:
    import rich.progress

EVERY = 1.0
"""Seconds between two reads of the loss: each makes the host wait for the device."""


class Silent:
    """No output; the base class of all progress displays."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def another(self) -> Silent:
        """The display of further replicas that train at the same time, which may be this one."""
        return self

    def begin(self, runs: Sequence[Run], update: int, total: int) -> None:
        """Replicas start or resume, side by side."""

    def wants_loss(self) -> bool:
        """Whether to pass the loss to the next `step`."""
        return False

    def step(self, update: int, loss: float | None = None) -> None:
        """`update` updates are done."""

    def evaluated(self, run: Run, line: dict[str, Any]) -> None:
        """There is a new line of metrics."""

    def ended(self, run: Run, result: dict[str, Any]) -> None:
        """A run has ended."""

    def say(self, message: str) -> None:
        """Show a message."""

    def end(self) -> None:
        """The replicas of the last `begin` have ended, or were stopped."""


class Quiet(Silent):
    """One plain line per evaluation, for logs.

    Args:
        stream: Stream to print to; None for stderr.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream

    def say(self, message: str) -> None:
        with suppress(OSError):  # a full disk must not end the training
            print(printable(message), file=self.stream or sys.stderr, flush=True)

    def begin(self, runs: Sequence[Run], update: int, total: int) -> None:
        self.say(f"{title(runs)}: {'resumes at' if update else 'starts at'} update {update} of {total}")

    def evaluated(self, run: Run, line: dict[str, Any]) -> None:
        shown = [f"{split} {name} {value:.4g}" for split, name, value in scores(line)]
        self.say(f"{run}: update {line['update']}, epoch {line['epoch']:g}, {', '.join(shown)}")

    def ended(self, run: Run, result: dict[str, Any]) -> None:
        self.say(f"{run}: {result['status']} after {result['updates']} updates")


class Progress(Silent):
    """A live progress bar for every group of seeds: loss, goal, updates per second, time left.

    Use it as a context manager around any number of calls of `train`. If standard error is not a terminal, it falls
    back to plain lines.
    """

    def __init__(self) -> None:
        self._bars: rich.progress.Progress | None = None
        self._lines = Quiet()
        self._bar: Any = None
        self._runs: list[Run] = []
        self._goals: dict[int, float] = {}
        self._looked = 0.0

    def __enter__(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        console = Console(stderr=True)
        if console.is_terminal:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeRemainingColumn(),
                console=console,
                refresh_per_second=4,
                expand=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def another(self) -> Progress:
        return copy.copy(self)

    def say(self, message: str) -> None:
        if self._bars is None:
            self._lines.say(message)
        else:
            self._bars.console.print(printable(message), markup=False, highlight=False)

    def begin(self, runs: Sequence[Run], update: int, total: int) -> None:
        self._runs, self._goals = list(runs), {}
        self._from, self._start = update, time.monotonic()
        if self._bars is None:
            self._lines.begin(runs, update, total)
        else:
            from rich.markup import escape

            self._bar = self._bars.add_task(escape(printable(title(runs))), total=total, completed=update, numbers="")

    def wants_loss(self) -> bool:
        return self._bars is not None and time.monotonic() - self._looked > EVERY

    def step(self, update: int, loss: float | None = None) -> None:
        if self._bars is None or loss is None:
            return
        self._looked = time.monotonic()
        speed = (update - self._from) / max(1e-9, self._looked - self._start)
        shown = [f"loss {loss:.4g}"]
        if self._goals:
            goal = self._runs[0].task.goal
            shown.append(f"{goal} {sum(self._goals.values()) / len(self._goals):.4g}")
        self._bars.update(self._bar, completed=update, numbers="  ".join([*shown, f"{speed:.3g} updates/s"]))

    def evaluated(self, run: Run, line: dict[str, Any]) -> None:
        value = line.get("validation", {}).get(run.task.goal)
        if value is not None:
            self._goals[run.seed] = value
        if self._bars is None:
            self._lines.evaluated(run, line)
        else:
            self._bars.update(self._bar, completed=line["update"])

    def ended(self, run: Run, result: dict[str, Any]) -> None:
        if self._bars is None:
            self._lines.ended(run, result)
        else:
            goal = run.task.goal
            best = (result["best"] or {}).get(goal)
            tail = "" if best is None else f", best {goal} {best:.4g}"
            self.say(f"{run}: {result['status']} after {result['updates']} updates{tail}")

    def end(self) -> None:
        if self._bars is not None and self._bar is not None:
            self._bars.stop_task(self._bar)


def title(runs: Sequence[Run]) -> str:
    """A short title for runs that differ only in their seed."""
    seeds = [run.seed for run in runs]
    consecutive = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    words = f"{seeds[0]}-{seeds[-1]}" if consecutive else ",".join(map(str, seeds))
    return f"{runs[0].experiment} {runs[0].model_name} {'seed' if len(seeds) == 1 else 'seeds'} {words}"


def scores(line: dict[str, Any]) -> list[tuple[str, str, float]]:
    """Split, name and value of every score in a line of metrics."""
    return [
        (split, name, value)
        for split in ("train", "validation")
        for name, value in line.get(split, {}).items()
        if value is not None
    ]
