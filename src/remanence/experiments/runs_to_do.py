"""The list of runs of a campaign, results/campaign.yaml, and which of them have finished."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..training.directory import Directory, read_result
from ..training.files import RunError
from . import results, text
from .build import build
from .findings import is_about_kept_run, who
from .models import describe
from .registry import find
from .schema import Experiment, Model

LIST = Path("results/campaign.yaml")
GAIN = 2.0
"""Approximate gain in throughput when processes share a device."""


@dataclass(frozen=True)
class Line:
    """The runs of one process, or an analysis of runs before it in the list."""

    id: str
    minutes: float
    """Run time on one H200 that is not shared."""
    models: list[str] = field(default_factory=list)
    """Empty for all models."""
    seeds: list[int] = field(default_factory=list)
    """Empty for the seeds of the preset."""
    preset: str = "paper"

    def __str__(self) -> str:
        models = [",".join(self.models)] if self.models else []
        seeds = [f"seeds {','.join(map(str, self.seeds))}"] if self.seeds else []
        return " ".join([self.id, self.preset, *models, *seeds])

    @property
    def experiment(self) -> Experiment:
        """The experiment with its preset."""
        return find(self.id, self.preset)

    def runs(self) -> Iterator[tuple[Model, int]]:
        """Every model with every seed."""
        experiment = self.experiment
        for name in self.models or experiment.usual:
            for seed in self.seeds or experiment.seeds:
                yield experiment.models[name], seed

    def needs(self) -> list[tuple[str, Experiment, Model, int]]:
        """The runs that an analysis reads: the name of the need, and experiment, model and seed."""
        return [
            (name, other, other.models[model], seed)
            for name, need in self.experiment.needs.items()
            for other in [find(need.experiment, self.preset)]
            for model in need.names(other)
            for seed in self.seeds or other.seeds
        ]

    def is_ready(self, place: Path) -> bool:
        """Whether the runs that an analysis reads have finished in this folder."""
        return all(is_finished(place, other, model, seed) for _, other, model, seed in self.needs())

    def is_analysed(self, place: Path) -> bool:
        """Whether a folder has the findings of an analysis about the runs there. Diverged runs are not analysed."""
        found = (read_result(results.folder_of(place, self.experiment)) or {}).get("runs", ())
        about = {who(run) for run in found if is_about_kept_run(run, place, self.experiment)}
        return all(
            (need, model.name, seed) in about or has_diverged(place, other, model, seed)
            for need, other, model, seed in self.needs()
        )

    def shared(self, count: int) -> float:
        """Estimated minutes as one of `count` concurrent processes."""
        return self.minutes * max(1.0, count / GAIN)

    def left(self, folders: Sequence[Path]) -> int:
        """Number of runs that have not finished in any of these folders, or 1 for an analysis that is not done.

        An analysis counts in the first folder that has the runs it reads.
        """
        experiment = self.experiment
        if experiment.kind == "analysis":
            place = next(filter(self.is_ready, folders), None)
            return int(place is None or not self.is_analysed(place))
        return sum(
            not any(is_finished(place, experiment, model, seed) for place in folders) for model, seed in self.runs()
        )

    def trains_all(self, needed: Collection[tuple[str, str, str, int]]) -> bool:
        """Whether the process must train runs that have finished elsewhere, too, since weights are not kept there.

        Args:
            needed: Runs that analyses read: experiment, preset, model and seed.
        """
        return self.experiment.function is not None or self.has_one_of(needed)

    def has_one_of(self, runs: Collection[tuple[str, str, str, int]]) -> bool:
        """Whether one of its runs is among these: experiment, preset, model and seed."""
        return any((self.id, self.preset, model.name, seed) in runs for model, seed in self.runs())

    def command(self, out: Path, device: str, seconds: float, kept: Sequence[Path] = ()) -> list[str]:
        """The command line of the process.

        Args:
            out: Folder for the results.
            device: Device to train on.
            seconds: Time limit.
            kept: Folders whose finished runs are left out.
        """
        words = ["run", self.id, "--preset", self.preset]
        words += ["--models", ",".join(self.models)] if self.models else []
        words += ["--seeds", ",".join(map(str, self.seeds))] if self.seeds else []
        words += ["--budget", f"{seconds:.0f}s"] if math.isfinite(seconds) else []
        words += [word for folder in kept for word in ("--unless-in", str(folder))]
        words += ["--device", device, "--quiet", "--out", str(out)]
        return [sys.executable, "-m", "remanence", *words]


def read(path: Path = LIST) -> list[Line]:
    """Read the lines of a list, in order."""
    written = text.read(path.read_text("utf-8"))
    return [build(Line, values, f"runs.{number}") for number, values in enumerate(written["runs"], 1)]


def to_do(lines: Sequence[Line], folders: Sequence[Path]) -> list[Line]:
    """The lines with something left, and those whose checkpoints an analysis needs in the first folder."""
    left = [line for line in lines if line.left(folders)]
    needed = read_by(left)
    again = [line for line in lines if line.has_one_of(needed) and line.left(folders[:1])]
    return [line for line in lines if line in left or line in again]


def read_by(lines: Sequence[Line]) -> set[tuple[str, str, str, int]]:
    """The runs that analyses among these lines read: experiment, preset, model and seed."""
    return {(other.id, other.preset, model.name, seed) for line in lines for _, other, model, seed in line.needs()}


def is_finished(place: Path, experiment: Experiment, model: Model, seed: int) -> bool:
    """Whether a folder has the result of a run with its current configuration that had come to its end."""
    folder = results.run_folder(place, experiment, model.name, seed)
    there = (folder / "result.json").exists() and is_current(place, experiment, model, seed)
    return there and not results.is_unfinished(folder)


def is_current(place: Path, experiment: Experiment, model: Model, seed: int) -> bool:
    """Whether a folder has no run of another configuration."""
    directory = Directory(results.run_folder(place, experiment, model.name, seed))
    try:
        directory.expect_written(describe(experiment, model, seed))
    except RunError:
        return False
    return True


def has_diverged(place: Path, experiment: Experiment, model: Model, seed: int) -> bool:
    """Whether a run in a folder has diverged."""
    return (read_result(results.run_folder(place, experiment, model.name, seed)) or {}).get("status") == "diverged"
