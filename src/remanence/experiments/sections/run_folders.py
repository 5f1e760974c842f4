"""Folders of runs, wherever they are, finished or not: what each was, where and how long it ran, how far it is."""

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
from ..results import SWEEP

SKIPPED = ("checkpoints",)
"""Folders in which no run is looked for, besides hidden ones."""
Key = tuple[Path | None, str, str]
"""Folder of results, experiment and preset: what runs of one section have in common."""


@dataclass(frozen=True)
class RunFolder:
    """One run."""

    path: Path
    description: Mapping[str, Any]
    """What config.yaml says."""
    problems: list[str] = field(default_factory=list)
    """Damage to what is known of its time and its machine, which costs neither its table nor its figures."""

    @classmethod
    def read(cls, path: Path) -> RunFolder:
        """A run by its folder, or one sentence on why it cannot be read."""
        description = read_description(path)
        for name, kind in (("experiment", str), ("preset", str), ("model", str), ("seed", int), ("training", dict)):
            if not isinstance(description.get(name), kind):
                raise ValueError(f"expected {name} in {path / 'config.yaml'}, got {description.get(name)!r}")
        run = cls(path, description)
        _ = run.files.metrics, run.files.result, run.machine, run.times  # what cannot be read is answered here
        return run

    @property
    def id(self) -> str:
        """Of its experiment."""
        return str(self.description["experiment"])

    @property
    def preset(self) -> str:
        """Of its experiment."""
        return str(self.description["preset"])

    @property
    def model(self) -> str:
        """The name of its model."""
        return str(self.description["model"])

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.description["seed"])

    @property
    def root(self) -> Path | None:
        """The folder of all results; None where it does not lie as `remanence run` puts it."""
        tail = (*self.id.split("/"), self.preset, self.model, f"seed-{self.seed}")
        return self.path.parents[len(tail) - 1] if self.path.parts[-len(tail) :] == tail else None

    @cached_property
    def files(self) -> RunFiles:
        """What it wrote during training and at the end."""
        return RunFiles(self.path, self.model, self.seed)

    @property
    def ended(self) -> bool:
        """Whether it has a result."""
        return self.files.result is not None

    @cached_property
    def machine(self) -> dict[str, Any]:
        """Where it was started; empty if that is not known."""
        try:
            return Directory(self.path).machine
        except RunError as error:
            self.problems.append(str(error))
            return {}

    @cached_property
    def times(self) -> list[dict[str, Any]]:
        """What was noted with a time; nothing where that cannot be read."""
        try:
            return read_lines(self.path, "times.jsonl")
        except RunError as error:
            self.problems.append(str(error))
            return []

    @property
    def stretches(self) -> list[tuple[float, float]]:
        """From when to when it was busy, in seconds since 1970."""
        ends = [(line.get("at"), line.get("seconds")) for line in self.times]
        return [
            (stamp(at) - seconds, stamp(at))
            for at, seconds in ends
            if isinstance(at, str) and isinstance(seconds, int | float)
        ]

    @property
    def was_interrupted(self) -> bool:
        """Whether it was stopped and went on."""
        return [line.get("what") for line in self.times].count("start") > 1

    @property
    def update(self) -> int:
        """The last one that is known of."""
        result = self.files.result or {}
        lines = self.files.metrics
        return int(result.get("updates") or (lines[-1]["update"] if lines else 0))

    @property
    def share(self) -> float | None:
        """How much of its training is done; None where nobody knows."""
        lines, epochs = self.files.metrics, self.description["training"].get("epochs")
        if not lines or not epochs or "epoch" not in lines[-1]:
            return None
        return min(1.0, float(lines[-1]["epoch"]) / float(epochs))

    @property
    def text(self) -> str:
        """Its configuration as it was written, without the seed: that of all seeds of a model."""
        lines = (self.path / "config.yaml").read_text("utf-8").splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("seed:"))

    @property
    def command(self) -> str | None:
        """As one would type it, without where its files went and how much it said; None for none of `remanence`."""
        if self.preset == "fit":
            return None
        try:
            words = shlex.split(str(self.machine.get("command", "")))[1:]
        except ValueError:  # a quotation mark without its other
            return None
        if "--out" in words:
            at = words.index("--out")
            del words[at : at + 2]
        return shlex.join(["remanence", *(word for word in words if word != "--quiet")]) if words else None


def stamp(at: str) -> float:
    """Seconds since 1970."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return math.nan


def busy(runs: Iterable[RunFolder]) -> float:
    """Seconds in which at least one of these runs was busy: seeds trained side by side share their time."""
    total, until = 0.0, -math.inf
    stretches = [one for run in runs for one in run.stretches if not math.isnan(one[0])]
    for start, end in sorted(stretches):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def search(folder: Path) -> Iterator[Path]:
    """Every folder below, itself included, that may be one of a run or of an analysis; not those inside of sweeps."""
    return (place for place, names in _walked(folder) if "config.yaml" in names or "result.json" in names)


def sweeps_in(folder: Path) -> Iterator[Path]:
    """Every folder below, itself included, that is one of a sweep."""
    return (place for place, names in _walked(folder) if SWEEP in names)


def _walked(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every folder below, itself included, with the names of its files; nothing inside of sweeps below."""
    for place, folders, names in os.walk(folder):
        inside = SWEEP in names and Path(place) != folder
        folders[:] = [] if inside else sorted(one for one in folders if one not in SKIPPED and not one.startswith("."))
        yield Path(place), names
