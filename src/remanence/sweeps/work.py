"""Doing units: one, or one after the other until nothing is left."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from ..engines.machine import device_named
from ..experiments import Way, results
from ..experiments.runs import analyse, conclude, own, run, train_models
from ..training import Budget, Stopped
from ..training.files import HeldError
from ..training.progress import Quiet, Silent
from . import lease
from .folder import Sweep
from .grid import Unit

WAIT = 2.0
"""Seconds after which somebody who found nothing free looks again."""


def owner_of_this_process() -> str:
    """A name that no other process has, anywhere."""
    return f"{socket.gethostname()}:{os.getpid()}-{secrets.token_hex(3)}"


def do(sweep: Sweep, unit: Unit, device: str, owner: str, progress: Silent, budget: Budget | None = None) -> bool:
    """Do a unit, or what is left of it, if nobody else does.

    Args:
        sweep: what it is of.
        unit: what to do.
        device: where.
        owner: who does it; see `lease.take`.
        progress: who is told.
        budget: how long it may take.

    Returns:
        Whether it was free.

    Raises:
        Stopped: a signal or the budget ended it. Everything is saved.
    """
    held = lease.take(sweep.lease(unit), owner)
    if held is None:
        return False
    sweep.begin(unit)
    # What trains listens to signals in the main thread, saves, and raises `Stopped`.
    held.keep(lambda: signal.raise_signal(signal.SIGTERM))  # on Windows os.kill would end the process
    try:
        if not sweep.is_done(unit):
            carry_out(sweep, unit, device, progress, budget)
            if not sweep.is_done(unit):
                sweep.fail(unit, "it ended without all of its results")
    except Stopped:
        if not held.lost:
            raise
    except HeldError:  # another process trains there: later
        return False
    except Exception as error:
        sweep.fail(unit, sentence(error))
    finally:
        sweep.beginning(unit).unlink(missing_ok=True)
        held.give_back()
    return True


def carry_out(sweep: Sweep, unit: Unit, device: str, progress: Silent, budget: Budget | None) -> None:
    """The work itself, as `remanence run` does it."""
    way = Way(sweep.out(unit), device_named(device), budget or Budget(), len(unit.seeds) or None, progress)
    if unit.model:
        train_models(unit.experiment, way, [unit.model], list(unit.seeds))
    else:
        run(unit.experiment, way, sweep.grid.models, list(unit.seeds))


def sentence(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, torch.OutOfMemoryError):
        return "it needs more memory than the device has: fewer seeds at a time (--together) need less"
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, ValueError) and text.startswith("expected ") else f"{type(error).__name__}: {text}"


def do_all(sweep: Sweep, waiting: Sequence[Unit], device: str, owner: str, progress: Silent) -> None:
    """Do units, one after the other, until all are done or have failed.

    What others do is waited for, and taken over should they be gone.

    Args:
        sweep: what they are of.
        waiting: which units.
        device: where.
        owner: who does them.
        progress: who is told.
    """
    waiting = list(waiting)
    while waiting:
        worked = False
        for unit in list(waiting):
            if sweep.is_done(unit) or sweep.failure(unit) is not None:
                waiting.remove(unit)
            elif do(sweep, unit, device, owner, progress):
                worked = True
        if not worked and waiting:
            time.sleep(WAIT)


def do_one(folder: str, name: str, device: str, owner: str) -> None:
    """Do a unit of the sweep in a folder, or wait for whoever does: what a task or a job of a cluster is."""
    sweep = Sweep.open(Path(folder))
    do_all(sweep, [sweep.named(name)], device, owner, Quiet())


def close(sweep: Sweep, device: str) -> None:
    """What is left when all units are done: summaries of every point, and analyses that look at its models."""
    of_points: dict[tuple[str, str, tuple[str, ...]], list[Unit]] = {}
    for unit in sweep.units:
        if unit.model:
            of_points.setdefault((unit.id, unit.preset, unit.sets), []).append(unit)
    for units in of_points.values():
        experiment, out = units[0].experiment, sweep.out(units[0])
        found = results.outcomes(out, experiment)
        if found:
            results.save(results.folder_of(out, experiment) / "summary.json", results.summary(experiment, found))
        if experiment.function is not None and all(map(sweep.is_done, units)):
            way = Way(out, device_named(device))
            conclude(experiment, way, own(experiment, way), analyse)


def main() -> None:
    """A worker, as the local launcher starts it: FOLDER DEVICE OWNER."""
    import sys

    folder, device, owner = sys.argv[1:]
    sweep = Sweep.open(Path(folder))
    try:
        do_all(sweep, sweep.units, device, owner, Quiet())
    except Stopped as stopped:
        raise SystemExit(stopped.code or 143) from None


if __name__ == "__main__":
    main()
