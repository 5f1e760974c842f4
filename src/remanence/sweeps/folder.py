"""The folder of a sweep.

sweep.yaml               the grid; another sweep is refused
points/VALUES/ID/PRESET  runs, in the layout of `remanence run`
leases/UNIT              the process that works on a unit
ended/UNIT.json          units that failed, with the reason
logs/                    output of workers
table.json               all results, once there are any
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import files
from ..experiments import results, text
from ..experiments.runs_to_do import is_finished
from . import lease
from .grid import Grid, Unit, digest, read, slug, understood, units

NAMES = ("queued", "running", "done", "failed")


@dataclass(frozen=True)
class State:
    """The state of a unit."""

    name: str
    """One of `NAMES`."""
    who: str = ""
    """Owner of the lease: the process that works on it."""
    share: float = 0.0
    """Fraction of the work that is done."""
    seconds: float = 0.0
    """Seconds since that process began."""
    before: float = 0.0
    """Fraction of the work that was done at that time."""
    reason: str = ""
    """Why it failed."""

    @property
    def left(self) -> float | None:
        """Estimated seconds left; None if unknown."""
        if self.name != "running" or self.share <= self.before:
            return None
        return self.seconds * (1 - self.share) / (self.share - self.before)


class Sweep:
    """A sweep and its folder.

    Args:
        folder: Folder of the sweep.
        grid: Grid of runs.
        together: Seeds per unit; None for all.
        runs: Folder of the runs if not inside `folder`: for a sweep of one point, as in `remanence run --devices`.
    """

    def __init__(self, folder: Path, grid: Grid, together: int | None = None, runs: Path | None = None) -> None:
        self.folder, self.grid, self.together, self.runs = folder, grid, together, runs

    @cached_property
    def units(self) -> list[Unit]:
        """All units, in order."""
        return units(self.grid, self.together)

    @classmethod
    def open(cls, folder: Path) -> Sweep:
        """Open the sweep of a folder."""
        path = folder / results.SWEEP
        try:
            words = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"expected a sweep in {folder}, got no readable {path.name}: {error}") from None
        found = understood(words)
        together = runs = None
        if isinstance(found, dict):
            together, runs = found.pop("together", None), found.pop("runs", None)
        return cls(folder, read(text.write(found)), together, None if runs is None else (folder / runs).resolve())

    @classmethod
    def over_devices(cls, out: Path, grid: Grid, devices: list[str], together: int | None = None) -> Sweep:
        """The sweep of `remanence run --devices`.

        Args:
            out: Folder of the runs. The folder of the sweep is in it.
            grid: Grid of one experiment at one point.
            devices: Devices to run on.
            together: Seeds per unit; None for one on a CPU, all on GPUs.
        """
        usual = 1 if devices[0] == "cpu" else None
        name = f"{slug(f'{grid.ids[0]}-{grid.presets[0]}')}-{digest(repr((grid, together, devices)))}"
        return cls(out / ".sweeps" / name, grid, together or usual, out)

    def make(self) -> None:
        """Write sweep.yaml into a new folder; refuse the folder of another sweep."""
        path = self.folder / results.SWEEP
        if self.folder.is_file():
            raise ValueError(f"expected a folder for the sweep, got the file {self.folder}")
        if not path.exists() and self.folder.exists():
            others = [one for one in self.folder.iterdir() if not one.name.startswith(files.TEMPORARY)]
            if others and not path.exists():  # another process may have created it just now
                raise ValueError(
                    f"expected a new folder or the folder of this sweep, got {self.folder}, which has other files"
                )
        if path.exists():
            now = self.plain()
            for name, before in Sweep.open(self.folder).plain().items():
                if before != now.get(name):
                    different = f"expected {name} to be {before!r} as in {path}, got {now.get(name)!r}"
                    raise ValueError(f"{different}; give another folder (--out)")
            return
        self.units  # noqa: B018  raise all errors before anything is written
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            files.write(path, text.write(self.plain()).encode())
        except OSError as error:
            raise ValueError(f"expected a writable folder, got {self.folder}: {error.strerror}") from None

    def plain(self) -> dict[str, Any]:
        """The content of sweep.yaml."""
        found = self.grid.plain() | {"together": self.together}
        if self.runs is None:
            return found
        return found | {"runs": os.path.relpath(self.runs.resolve(), self.folder.resolve())}

    # Units.

    @property
    def left(self) -> list[Unit]:
        """Units that are neither done nor failed."""
        return [unit for unit in self.units if not self.is_done(unit) and self.failure(unit) is None]

    def named(self, name: str) -> Unit:
        """The unit with this name."""
        return next(unit for unit in self.units if unit.name == name)

    def out(self, unit: Unit) -> Path:
        """The output folder of its runs, as for `remanence run --out`."""
        return self.folder / "points" / unit.point if self.runs is None else self.runs

    def lease(self, unit: Unit) -> Path:
        """The path of its lease."""
        return self.folder / "leases" / unit.name

    def beginning(self, unit: Unit) -> Path:
        """The file that records when work on it began."""
        return self.folder / "leases" / f"{unit.name}.began"

    def is_done(self, unit: Unit) -> bool:
        """Whether all of its results exist."""
        experiment = unit.experiment
        if not unit.model:
            return (results.folder_of(self.out(unit), experiment) / "result.json").exists()
        model = experiment.models[unit.model]
        return all(is_finished(self.out(unit), experiment, model, seed) for seed in unit.seeds)

    def failure(self, unit: Unit) -> str | None:
        """Why it failed; None if it did not. A unit with all of its results has not failed."""
        try:
            reason = str(json.loads(self._ended(unit).read_text("utf-8"))["reason"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return None if self.is_done(unit) else reason

    def fail(self, unit: Unit, reason: str) -> None:
        """Record that it failed."""
        path = self._ended(unit)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, (json.dumps({"unit": str(unit), "reason": reason}, ensure_ascii=False) + "\n").encode())

    def forgive(self) -> int:
        """Let failed units be tried again; returns their number."""
        found = [unit for unit in self.units if self.failure(unit) is not None]
        for unit in found:
            self._ended(unit).unlink(missing_ok=True)
        return len(found)

    def state(self, unit: Unit) -> State:
        """The current state of a unit."""
        if self.is_done(unit):
            return State("done", share=1.0)
        reason = self.failure(unit)
        if reason is not None:
            return State("failed", reason=reason)
        path = self.lease(unit)
        held = lease.look(path)
        if held is None or not lease.is_held(path):
            return State("queued", share=self.share(unit))
        try:
            began = json.loads(self.beginning(unit).read_text("utf-8"))
            since, before = max(0.0, time.time() - float(began["at"])), float(began["share"])
        except (OSError, ValueError, KeyError, TypeError):
            since = before = 0.0
        return State("running", held[0], self.share(unit), since, before)

    def begin(self, unit: Unit) -> None:
        """Record that work on it begins."""
        files.write(self.beginning(unit), json.dumps({"at": time.time(), "share": self.share(unit)}).encode())

    def share(self, unit: Unit) -> float:
        """Fraction of its work that is done, according to the latest evaluations."""
        if not unit.model:
            return 0.0
        experiment = unit.experiment
        training = experiment.models[unit.model].training
        shares = []
        for seed in unit.seeds:
            path = results.run_folder(self.out(unit), experiment, unit.model, seed) / "metrics.jsonl"
            try:
                last = json.loads(path.read_bytes().splitlines()[-1])
                shares.append(min(1.0, float(last["epoch"]) / max(1e-9, float(training.epochs or 1))))
            except (OSError, ValueError, IndexError, KeyError, TypeError):
                shares.append(0.0)
        return sum(shares) / len(shares)

    def _ended(self, unit: Unit) -> Path:
        return self.folder / "ended" / f"{unit.name}.json"
