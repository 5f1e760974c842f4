"""Measure the overhead of sweep launchers: startup, and per unit of work.

    python docs/launched.py plain local ray slurm

Two sweeps of the same small units, one with twice as many as the other, are timed for each launcher with one unit at a
time, and for `local` with one per core. The time of a unit follows from that of the additional units. `plain`, which
comes first, is one `remanence run` of all units. The numbers are in docs/how-to/many-gpus.md.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

UNITS = 6
"""Units of the smaller sweep."""
SIZES = ["train.epochs=30", "task.train_size=320"]
"""Settings of a unit: it takes a second or two."""
LAUNCHERS = {
    "plain": [],
    "local": ["--launcher", "local"],
    "ray": ["--launcher", "ray"],
    "slurm": ["--launcher", "slurm"],
}


class Cost(NamedTuple):
    """Seconds."""

    start: float
    """Before and after all units."""
    unit: float
    """Per unit, including the overhead of the launcher."""

    @classmethod
    def of(cls, few: float, many: float, units: int = UNITS) -> Cost:
        """From the seconds of so many units, and of twice as many."""
        return cls(2 * few - many, (many - few) / units)


def command(launcher: str, units: int, workers: int, out: Path) -> list[str]:
    """The command that is timed."""
    common = ["plstm/copy-200", "--preset", "smoke", "--models", "plstm", "--seeds", f"1-{units}", "--out", str(out)]
    common += [word for size in SIZES for word in ("--set", size)]
    if launcher == "plain":
        return ["run", *common, "--device", "cpu", "--together", "1", "--quiet"]
    return ["sweep", *common, "--devices", "cpu", "--workers", str(workers), *LAUNCHERS[launcher]]


def timed(launcher: str, units: int, workers: int = 1) -> float:
    """Seconds of a command."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "remanence", *command(launcher, units, workers, Path(folder) / "out")]
        start = time.perf_counter()
        done = subprocess.run(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        took = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{launcher} failed: {done.stderr.strip()}")
    return took


def line(name: str, cost: Cost, plain: Cost | None) -> str:
    """A row of the table: what a launcher adds to a unit, also relative to a unit of one minute."""
    if plain is None:
        return f"| {name} | {cost.start:.1f} | {cost.unit:.2f} | | |"
    more = cost.unit - plain.unit
    return f"| {name} | {cost.start:.1f} | {cost.unit:.2f} | {more:.2f} | {more / 60:.1%} |"


def main(launchers: list[str]) -> None:
    """Measure and print."""
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, {platform.machine()}, load {load:.1f} before anything was started here")
    print("\n| launcher | start and end, s | a unit, s | added to a unit, s | of a minute |\n|---|---|---|---|---|")
    plain: Cost | None = None
    for launcher in launchers:
        cost = Cost.of(timed(launcher, UNITS), timed(launcher, 2 * UNITS))
        print(line(launcher, cost, plain), flush=True)
        plain = cost if launcher == "plain" else plain
    if "local" in launchers:
        cores = os.cpu_count() or 1
        took = [timed("local", 2 * UNITS, workers) for workers in (1, cores)]
        words = (
            f"{60 * 2 * UNITS / seconds:.0f} a minute with {n}" for n, seconds in zip((1, cores), took, strict=True)
        )
        print(f"\nUnits by the local launcher, all in all: {', '.join(words)}.")


if __name__ == "__main__":
    main(sys.argv[1:] or list(LAUNCHERS))
