"""The list of runs of a campaign, results/campaign.yaml, and which of them have finished."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..training.directory import Directory, read_result
from ..training.files import RunError
from . import results, text
from .analyses.words import rounded
from .build import build
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
        found = []
        for name, need in self.experiment.needs.items():
            other = find(need.experiment, self.preset)
            for model in need.models or other.usual:
                if not self.models or model in self.models:
                    found += [(name, other, other.models[model], seed) for seed in self.seeds or other.seeds]
        return found

    def is_ready(self, work: Path) -> bool:
        """Whether what an analysis reads, the checkpoints of finished runs, is in this folder."""
        return all(is_finished(work, other, model, seed) for _, other, model, seed in self.needs())

    def is_analysed(self, place: Path) -> bool:
        """Whether a folder has the findings of an analysis about the runs there."""
        found = (read_result(results.folder_of(place, self.experiment)) or {}).get("runs", [])
        kept = {who(run) for run in found if is_about_kept_run(run, place, self.experiment)}
        return kept >= {(need, model.name, seed) for need, _, model, seed in self.needs()}

    def shared(self, count: int) -> float:
        """Estimated minutes as one of `count` concurrent processes."""
        return self.minutes * max(1.0, count / GAIN)

    def left(self, folders: Iterable[Path]) -> int:
        """Number of runs, or analyses, that have not finished in any of these folders."""
        places, experiment = list(folders), self.experiment
        if experiment.kind == "analysis":
            return int(not any(map(self.is_analysed, places)))
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


def who(run: Mapping[str, Any]) -> tuple[str, str, int]:
    """Need, model and seed of a run that an analysis has read."""
    return run["need"], run["model"], run["seed"]


def is_about_kept_run(run: Mapping[str, Any], place: Path, experiment: Experiment) -> bool:
    """Whether findings are about the run that is in a folder, and not one that it has replaced.

    Args:
        run: A run in the result of an analysis.
        place: A folder of results.
        experiment: The analysis, or the training that ends with one.
    """
    need = experiment.needs.get(run["need"])
    other = experiment if need is None else find(need.experiment, experiment.preset)
    kept = read_result(results.run_folder(place, other, run["model"], run["seed"]))
    return kept is not None and rounded(kept) == rounded(run["result"])


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
