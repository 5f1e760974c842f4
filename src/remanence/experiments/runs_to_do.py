"""The list of runs of a campaign, results/campaign.yaml, and which of them have finished."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..training.directory import Directory
from ..training.files import RunError
from . import results, text
from .build import build
from .models import describe
from .registry import find
from .schema import Experiment, Model

LIST = Path("results/campaign.yaml")
GAIN = 2.0
"""Approximate gain in throughput when processes share a device."""


@dataclass(frozen=True)
class Line:
    """The runs of one process."""

    id: str
    minutes: float
    """Run time on one H200 that is not shared."""
    models: list[str] = field(default_factory=list)
    """Empty for all models."""
    seeds: list[int] = field(default_factory=list)
    """Empty for the seeds of the preset."""
    preset: str = "paper"

    def __str__(self) -> str:
        return " ".join([self.id, self.preset, *([",".join(self.models)] if self.models else [])])

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

    def shared(self, count: int) -> float:
        """Estimated minutes as one of `count` concurrent processes."""
        return self.minutes * max(1.0, count / GAIN)

    def left(self, folders: Iterable[Path]) -> int:
        """Number of runs that have not finished in any of these folders."""
        places, experiment = list(folders), self.experiment
        return sum(
            not any(is_finished(place, experiment, model, seed) for place in places) for model, seed in self.runs()
        )

    def command(self, out: Path, device: str, seconds: float) -> list[str]:
        """The command line of the process."""
        words = ["run", self.id, "--preset", self.preset]
        words += ["--models", ",".join(self.models)] if self.models else []
        words += ["--seeds", ",".join(map(str, self.seeds))] if self.seeds else []
        words += ["--budget", f"{seconds:.0f}s"] if math.isfinite(seconds) else []
        words += ["--device", device, "--quiet", "--out", str(out)]
        return [sys.executable, "-m", "remanence", *words]


def read(path: Path = LIST) -> list[Line]:
    """Read the lines of a list, in order."""
    written = text.read(path.read_text("utf-8"))
    return [build(Line, values, f"runs.{number}") for number, values in enumerate(written["runs"], 1)]


def is_finished(place: Path, experiment: Experiment, model: Model, seed: int) -> bool:
    """Whether a folder has the result of a run with its current configuration."""
    directory = Directory(results.run_folder(place, experiment, model.name, seed))
    if not (directory.path / "result.json").exists():
        return False
    try:
        directory.expect_configuration(describe(experiment, model, seed))
    except RunError:
        return False
    return True
