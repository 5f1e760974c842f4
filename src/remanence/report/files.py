"""Result files of an experiment, for figures and reports. Independent of the experiments themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..training.directory import read_result
from ..training.files import read_lines


class NotYetRun(ValueError):  # noqa: N818  not an error
    """There are no results to draw."""


@dataclass(frozen=True)
class RunFiles:
    """A run folder, finished or not."""

    folder: Path
    model: str
    seed: int

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, without a truncated last line."""
        return read_lines(self.folder, "metrics.jsonl")

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """The result of a finished run."""
        return read_result(self.folder)

    def curve(self, score: str, split: str = "validation") -> dict[int, float]:
        """A score by update, without non-finite values."""
        return self.over("update", score, split)

    def over(self, axis: str, score: str, split: str = "validation") -> dict[Any, float]:
        """A score by "update" or "epoch"."""
        found = {line[axis]: (line.get(split) or {}).get(score) for line in self.metrics if axis in line}
        return {at: float(value) for at, value in found.items() if value is not None}

    def test(self, score: str) -> float | None:
        """A test score, if the run has one."""
        value = ((self.result or {}).get("test") or {}).get(score)
        return None if value is None else float(value)

    def reference(self, score: str) -> float | None:
        """Chance level of a score, if the task defines it."""
        value = ((self.result or {}).get("references") or {}).get(score)
        return None if value is None else float(value)


@dataclass(frozen=True)
class ResultFiles:
    """The results of one experiment and preset in a results folder."""

    root: Path
    id: str
    preset: str
    title: str = ""
    models: Sequence[str] = ()
    """Order of the models; others come after them."""
    score: str = "accuracy"
    """The score that the experiment reports."""
    unit: str = ""
    """Its unit: "%" shows a fraction as a percentage."""
    reach: float | None = None
    """If given, the validation score that counts as having learned the task."""

    @property
    def folder(self) -> Path:
        """Folder of its files."""
        return self.root / self.id / self.preset

    @property
    def place(self) -> str:
        """Its folder, relative to the results folder."""
        return f"{self.id}/{self.preset}"

    @property
    def scale(self) -> float:
        """Factor by which a score is multiplied for display."""
        return 100.0 if self.unit == "%" else 1.0

    @cached_property
    def runs(self) -> dict[str, list[RunFiles]]:
        """Runs with metrics or a result, by model."""
        found: dict[str, list[RunFiles]] = {}
        for path in self.folder.glob("*/seed-*"):
            seed = path.name.removeprefix("seed-")
            if seed.isdigit() and any((path / name).is_file() for name in ("metrics.jsonl", "result.json")):
                found.setdefault(path.parent.name, []).append(RunFiles(path, path.parent.name, int(seed)))
        order = {name: number for number, name in enumerate(self.models)}
        names = sorted(found, key=lambda name: (order.get(name, len(order)), name))
        return {name: sorted(found[name], key=lambda run: run.seed) for name in names}

    def expect_runs(self) -> dict[str, list[RunFiles]]:
        """Runs with at least one evaluation, by model; raises NotYetRun if there are none."""
        found = {name: [run for run in runs if run.metrics] for name, runs in self.runs.items()}
        found = {name: runs for name, runs in found.items() if runs}
        if not found:
            raise self.nothing()
        return found

    @property
    def has_found(self) -> bool:
        """Whether there are findings of an analysis or simulation."""
        return "found" in (read_result(self.folder) or {})

    def expect_found(self) -> dict[str, Any]:
        """The findings of an analysis or simulation; raises NotYetRun if it has not run."""
        result = read_result(self.folder)
        if result is None or "found" not in result:
            raise self.nothing()
        found: dict[str, Any] = result["found"]
        return found

    def summary(self) -> dict[str, Any] | None:
        """The summary of the finished runs."""
        return read(self.folder / "summary.json")

    def nothing(self) -> NotYetRun:
        """The exception for missing results."""
        return NotYetRun(
            f"expected results of {self.id} in {self.folder}, got none; "
            f"`remanence run {self.id} --preset {self.preset} --out {self.root}` creates them"
        )


def read(path: Path) -> dict[str, Any] | None:
    """Read a JSON file; None if it does not exist."""
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise unreadable(path) from None
    return content


def unreadable(path: Path) -> ValueError:
    """The exception for a damaged file."""
    return ValueError(f"expected JSON in {path}, got a damaged file; remove that run and run it again")
