"""The race of `remanence demo`: three models learn the same task at once, with live progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ...training import Run
from .. import results, runs
from ..registry import find
from ..schema import Experiment
from ..sections import gather
from ..way import Way
from .display import Board
from .outcome import ABOUT_THE_FAST_GATE, WHERE_AN_LSTM_DOES_AS_WELL, conclusion, draw, introduction, table
from .race import race
from .standing import Standing, read

__all__ = ["ABOUT_THE_FAST_GATE", "WHERE_AN_LSTM_DOES_AS_WELL", "Demo", "conclusion", "introduction", "table"]


@dataclass
class Demo:
    """The runs of the demo and their progress."""

    experiment: Experiment
    out: Path
    groups: Mapping[str, Sequence[Run]]
    standings: Mapping[str, Standing]

    @classmethod
    def of(cls, out: Path, quick: bool = False) -> Demo:
        """The demo with its runs in a folder, including those that are already there."""
        experiment = find("own/demo", "smoke" if quick else "short")
        groups = runs.plan(experiment, out)
        return cls(experiment, out, groups, {name: read(experiment, group) for name, group in groups.items()})

    def run(self) -> None:
        """Train the unfinished runs, all models at once, and show their progress.

        Raises:
            training.Stopped: A signal stopped it. Everything is saved.
        """
        left = {name: group for name, group in self.groups.items() if not all(map(runs.has_result, group))}
        if left:
            first = next(iter(self.groups.values()))[0].config
            with Board(self.standings, first.epochs * (first.epoch_updates or 1)) as board:
                race(left, board.lanes)
        # Everything is trained: this only refuses runs of another configuration and writes the summary.
        runs.train_models(self.experiment, Way(self.out, torch.device("cpu")), (), ())

    @property
    def folder(self) -> Path:
        """Folder of the runs."""
        return results.folder_of(self.out, self.experiment)

    def report(self, introduction: Sequence[str]) -> Path:
        """Write the HTML report of these runs, as `remanence report` does, with an introduction.

        Raises:
            ImportError: jinja2 is not installed.
        """
        from ...report import page

        path = self.folder / "report.html"
        page.write(gather([self.folder]), path, title="remanence demo: three models race", introduction=introduction)
        return path

    def draw(self) -> Path:
        """Plot the learning curves.

        Raises:
            ImportError: matplotlib is not installed.
        """
        path = self.folder / "learning.png"
        task = next(iter(self.standings.values())).model.task
        draw(list(self.standings.values()), f"Adding the two marked numbers of {task.length}", path)  # type: ignore[attr-defined]
        return path
