"""The files that an experiment left behind, for figures and reports. Nothing here trains or knows the experiments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..training.directory import read_result
from ..training.files import read_lines


class NotYetRun(ValueError):  # noqa: N818  nothing went wrong
    """There is nothing to draw from."""


@dataclass(frozen=True)
class RunFiles:
    """The folder of one run, finished or not."""

    folder: Path
    model: str
    seed: int

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """What was written down during training, without a last line that was cut off."""
        return read_lines(self.folder, "metrics.jsonl")

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """What a finished run came to."""
        return read_result(self.folder)

    def curve(self, score: str, split: str = "validation") -> dict[int, float]:
        """A score by update. What was not finite is left out."""
        return self.over("update", score, split)

    def over(self, axis: str, score: str, split: str = "validation") -> dict[Any, float]:
        """A score by "update" or "epoch"."""
        found = {line[axis]: (line.get(split) or {}).get(score) for line in self.metrics if axis in line}
        return {at: float(value) for at, value in found.items() if value is not None}

    def test(self, score: str) -> float | None:
        """A score on the test split, once the run has one."""
        value = ((self.result or {}).get("test") or {}).get(score)
        return None if value is None else float(value)

    def reference(self, score: str) -> float | None:
        """What a model that knows nothing scores, where the task says so."""
        value = ((self.result or {}).get("references") or {}).get(score)
        return None if value is None else float(value)


@dataclass(frozen=True)
class ResultFiles:
    """What there is of one experiment and preset under a folder of results."""

    root: Path
    id: str
    preset: str
    title: str = ""
    models: Sequence[str] = ()
    """The order of the models; others come after them."""
    score: str = "accuracy"
    """The score that the experiment is about."""
    unit: str = ""
    """Its unit: "%" shows a fraction times 100."""
    reach: float | None = None
    """Where given, a validation score that counts as having learned the task."""

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.root / self.id / self.preset

    @property
    def place(self) -> str:
        """The same, relative to the folder of results."""
        return f"{self.id}/{self.preset}"

    @property
    def scale(self) -> float:
        """What a score is multiplied with when it is shown."""
        return 100.0 if self.unit == "%" else 1.0

    @cached_property
    def runs(self) -> dict[str, list[RunFiles]]:
        """Runs that have metrics or a result, by model."""
        found: dict[str, list[RunFiles]] = {}
        for path in self.folder.glob("*/seed-*"):
            seed = path.name.removeprefix("seed-")
            if seed.isdigit() and any((path / name).is_file() for name in ("metrics.jsonl", "result.json")):
                found.setdefault(path.parent.name, []).append(RunFiles(path, path.parent.name, int(seed)))
        order = {name: number for number, name in enumerate(self.models)}
        names = sorted(found, key=lambda name: (order.get(name, len(order)), name))
        return {name: sorted(found[name], key=lambda run: run.seed) for name in names}

    def expect_runs(self) -> dict[str, list[RunFiles]]:
        """Runs with at least one evaluation, by model, or one sentence that there are none."""
        found = {name: [run for run in runs if run.metrics] for name, runs in self.runs.items()}
        found = {name: runs for name, runs in found.items() if runs}
        if not found:
            raise self.nothing()
        return found

    @property
    def has_found(self) -> bool:
        """Whether an analysis or simulation has left its findings."""
        return "found" in (read_result(self.folder) or {})

    def expect_found(self) -> dict[str, Any]:
        """What an analysis or simulation found, or one sentence that it has not run."""
        result = read_result(self.folder)
        if result is None or "found" not in result:
            raise self.nothing()
        found: dict[str, Any] = result["found"]
        return found

    def summary(self) -> dict[str, Any] | None:
        """The summary of the finished runs."""
        return read(self.folder / "summary.json")

    def nothing(self) -> NotYetRun:
        """What to say where there is nothing to draw from."""
        return NotYetRun(
            f"expected results of {self.id} in {self.folder}, got none; "
            f"`remanence run {self.id} --preset {self.preset} --out {self.root}` makes them"
        )


def read(path: Path) -> dict[str, Any] | None:
    """A JSON file, None where there is none."""
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise unreadable(path) from None
    return content


def unreadable(path: Path) -> ValueError:
    """What to say of a damaged file."""
    return ValueError(f"expected JSON in {path}, got something else; remove that run and run it again")
