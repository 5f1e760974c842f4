"""Progress display of the race: one live line per model on a terminal, a plain log elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...training import Run
from ...training.progress import Silent
from .standing import Standing

if TYPE_CHECKING:
    from rich.console import RenderableType

LOG_EVERY = 100
"""Updates between two log lines."""


class Lane(Silent):
    """Progress of one model."""

    def __init__(self, standing: Standing, board: Board) -> None:
        self.standing, self.board = standing, board

    def begin(self, runs: Sequence[Run], update: int, total: int) -> None:
        standing = self.standing
        for run in runs:  # updates after the checkpoint are repeated
            standing.curves[run.seed] = [point for point in standing.curves[run.seed] if point[0] <= update]
        standing.update = update
        if update:
            self.say(f"resumes at update {update:,}")

    def step(self, update: int, loss: float | None = None) -> None:
        self.standing.update = update

    def evaluated(self, run: Run, line: dict[str, Any]) -> None:
        self.standing.add(run.seed, line)
        if line["update"] % LOG_EVERY == 0 and run.seed == self.running[-1]:
            self.board.log(f"{self.standing.title}: update {line['update']:,}, typical error {self.standing.error:.2f}")

    def ended(self, run: Run, result: dict[str, Any]) -> None:
        self.standing.ended.add(run.seed)
        solved = self.standing.solved.get(run.seed)
        how = "solved" if solved else "diverged" if result["status"] == "diverged" else "not solved"
        end = f"{how} after {solved or result['updates']:,} updates"
        self.board.log(f"{self.standing.title}, seed {run.seed}: {end}")

    def say(self, message: str) -> None:
        self.board.say(f"{self.standing.title}: {message}")

    @property
    def running(self) -> list[int]:
        """Seeds that have not finished."""
        return [seed for seed in self.standing.curves if seed not in self.standing.ended]


class Board:
    """All lanes, as a context manager around a race.

    On a terminal, one line per model with a bar that fills as it learns; elsewhere a plain log. Both write to stderr.
    """

    def __init__(self, standings: Mapping[str, Standing], total: int) -> None:
        from rich.console import Console

        self.total = total
        self.lanes = {name: Lane(standing, self) for name, standing in standings.items()}
        self.console = Console(stderr=True, highlight=False)
        self._live: Any = None

    def __enter__(self) -> Board:
        from rich.live import Live

        if self.console.is_terminal:
            self._live = Live(get_renderable=self.render, console=self.console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def log(self, message: str) -> None:
        """Print a message that the live lines already show."""
        if self._live is None:
            print(message, file=sys.stderr, flush=True)

    def say(self, message: str) -> None:
        """Print a message that is always shown."""
        if self._live is None:
            self.log(message)
        else:
            self.console.print(message, markup=False)

    def render(self) -> RenderableType:
        """The current state of all lines."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        width = min(32, max(8, self.console.width - 72))
        grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        grid.add_column("", no_wrap=True)
        grid.add_column("learned", no_wrap=True)
        grid.add_column("", justify="right", no_wrap=True)
        grid.add_column("typical error", justify="right", no_wrap=True)
        grid.add_column("", no_wrap=True)
        for lane in self.lanes.values():
            standing = lane.standing
            grid.add_row(
                standing.title,
                ProgressBar(total=1.0, completed=standing.learned, width=width),
                f"{standing.learned:.0%}",
                f"{standing.error:.2f}",
                in_short(standing, self.total),
            )
        return grid


def in_short(standing: Standing, total: int) -> str:
    """Progress of a model in a few words."""
    if len(standing.ended) < len(standing.curves):
        return f"update {standing.update:,} of {total:,}" if standing.update else "starts"
    if len(standing.solved) < len(standing.curves):
        return f"not solved after {standing.update:,}"
    return f"solved after {', '.join(f'{update:,}' for update in standing.solved.values())}"
