"""Run folders, finished or not: configuration, hardware, run time and progress of every run."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ...report.files import RunFiles
from ...training import RunError
from ...training.directory import Directory
from ...training.files import read_lines
from ..models import read_description
from ..results import SWEEP, UNFINISHED

SKIPPED = ("checkpoints",)
"""Folders that are not searched for runs, besides hidden ones."""
Key = tuple[Path | None, str, str]
"""Results folder, experiment and preset: the same for all runs of a section."""


@dataclass(frozen=True)
class RunFolder:
    """One run."""

    path: Path
    description: Mapping[str, Any]
    """Content of config.yaml."""
    problems: list[str] = field(default_factory=list)
    """Damaged files about times and hardware; tables and figures do not need them."""

    @classmethod
    def read(cls, path: Path) -> RunFolder:
        """Read a run folder; a ValueError says why it cannot be read."""
        description = read_description(path)
        for name, kind in (("experiment", str), ("preset", str), ("model", str), ("seed", int), ("training", dict)):
            if not isinstance(description.get(name), kind):
                raise ValueError(f"expected {name} in {path / 'config.yaml'}, got {description.get(name)!r}")
        run = cls(path, description)
        _ = run.files.metrics, run.files.result, run.machine, run.times  # raise here for files that cannot be read
        return run

    @property
    def id(self) -> str:
        """Id of its experiment."""
        return str(self.description["experiment"])

    @property
    def preset(self) -> str:
        """Preset of its experiment."""
        return str(self.description["preset"])

    @property
    def model(self) -> str:
        """The name of its model."""
        return str(self.description["model"])

    @property
    def data(self) -> str:
        """How its data differed from the usual; empty if it did not."""
        return str((self.files.result or {}).get("data", ""))

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.description["seed"])

    @property
    def root(self) -> Path | None:
        """The folder of all results; None if the run is not where `remanence run` puts it."""
        tail = (*self.id.split("/"), self.preset, self.model, f"seed-{self.seed}")
        return self.path.parents[len(tail) - 1] if self.path.parts[-len(tail) :] == tail else None

    @cached_property
    def files(self) -> RunFiles:
        """Its metrics and result."""
        return RunFiles(self.path, self.model, self.seed)

    @property
    def has_result(self) -> bool:
        """Whether it is in the tables: it has finished, or was kept unfinished."""
        return self.files.result is not None

    @property
    def ended(self) -> bool:
        """Whether it has finished."""
        return self.files.result is not None and self.files.result.get("status") != UNFINISHED

    @cached_property
    def machine(self) -> dict[str, Any]:
        """Hardware, versions and start time; empty if unknown."""
        try:
            return Directory(self.path).machine
        except RunError as error:
            self.problems.append(str(error))
            return {}

    @cached_property
    def times(self) -> list[dict[str, Any]]:
        """Lines of times.jsonl; empty if it cannot be read."""
        try:
            return read_lines(self.path, "times.jsonl")
        except RunError as error:
            self.problems.append(str(error))
            return []

    @property
    def stretches(self) -> list[tuple[float, float]]:
        """Intervals in which it was running, in seconds since the epoch."""
        ends = [(line.get("at"), line.get("seconds")) for line in self.times]
        return [
            (stamp(at) - seconds, stamp(at))
            for at, seconds in ends
            if isinstance(at, str) and isinstance(seconds, int | float)
        ]

    @property
    def was_interrupted(self) -> bool:
        """Whether it was stopped and resumed."""
        return [line.get("what") for line in self.times].count("start") > 1

    @property
    def update(self) -> int:
        """The last known update."""
        result = self.files.result or {}
        lines = self.files.metrics
        return int(result.get("updates") or (lines[-1]["update"] if lines else 0))

    @property
    def share(self) -> float | None:
        """Fraction of its training that is done; None if unknown."""
        lines, epochs = self.files.metrics, self.description["training"].get("epochs")
        if not lines or not epochs or "epoch" not in lines[-1]:
            return None
        return min(1.0, float(lines[-1]["epoch"]) / float(epochs))

    @property
    def text(self) -> str:
        """Its configuration file without the seed, so that it is the same for all seeds of a model."""
        lines = (self.path / "config.yaml").read_text("utf-8").splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("seed:"))

    @property
    def command(self) -> str | None:
        """The command that repeats it; None if it was not a `remanence` command."""
        return None if self.preset == "fit" else typed(str(self.machine.get("command", "")))


LEFT_OUT = ("--out", "--budget", "--unless-in")
"""Options that only say where, for how long, and which runs are left."""


def typed(command: str) -> str | None:
    """A command as a reader would type it to repeat its runs; None if it is not a `remanence` command."""
    try:
        name, *words = shlex.split(command)
    except ValueError:  # empty, or unbalanced quotation marks
        return None
    if name != "remanence" or not words:
        return None
    for option in LEFT_OUT:
        while option in words:
            at = words.index(option)
            del words[at : at + 2]
    kept = [word for word in words if word != "--quiet" and not word.startswith(tuple(f"{one}=" for one in LEFT_OUT))]
    return shlex.join([name, *kept])


def stamp(at: str) -> float:
    """Seconds since the epoch."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return math.nan


def busy(runs: Iterable[RunFolder]) -> float:
    """Seconds in which at least one of these runs was running: seeds that train at once share their time."""
    total, until = 0.0, -math.inf
    stretches = [one for run in runs for one in run.stretches if not math.isnan(one[0])]
    for start, end in sorted(stretches):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def search(folder: Path) -> Iterator[Path]:
    """Find every folder, including `folder`, that may hold a run or an analysis; sweeps are not searched."""
    return (place for place, names in _walked(folder) if "config.yaml" in names or "result.json" in names)


def sweeps_in(folder: Path) -> Iterator[Path]:
    """Find every folder of a sweep, including `folder`."""
    return (place for place, names in _walked(folder) if SWEEP in names)


def _walked(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Walk through all folders, including `folder`, with their file names; sweeps below are not entered."""
    for place, folders, names in os.walk(folder):
        inside = SWEEP in names and Path(place) != folder
        folders[:] = [] if inside else sorted(one for one in folders if one not in SKIPPED and not one.startswith("."))
        yield Path(place), names
