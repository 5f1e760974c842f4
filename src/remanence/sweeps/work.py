"""Workers: run one unit, or one after the other until none is left."""

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
"""Seconds after which a worker that found no free unit looks again."""


def owner_of_this_process() -> str:
    """A globally unique name for this process."""
    return f"{socket.gethostname()}:{os.getpid()}-{secrets.token_hex(3)}"


def do(sweep: Sweep, unit: Unit, device: str, owner: str, progress: Silent, budget: Budget | None = None) -> bool:
    """Run a unit, or resume it, unless another process works on it.

    Args:
        sweep: Sweep of the unit.
        unit: Unit to run.
        device: Device to run on.
        owner: Owner of the lease, see `lease.take`.
        progress: Progress display.
        budget: Time limit.

    Returns:
        Whether the unit was free.

    Raises:
        Stopped: A signal or the budget stopped it. Everything is saved.
    """
    held = lease.take(sweep.lease(unit), owner)
    if held is None:
        return False
    sweep.begin(unit)
    # Training handles signals in the main thread: it saves and raises `Stopped`.
    held.keep(lambda: signal.raise_signal(signal.SIGTERM))  # on Windows os.kill would end the process
    try:
        if not sweep.is_done(unit):
            carry_out(sweep, unit, device, progress, budget)
            if not sweep.is_done(unit):
                sweep.fail(unit, "it ended, but some of its results are missing")
    except Stopped:
        if not held.lost:
            raise
    except HeldError:  # another process trains in this folder: try later
        return False
    except Exception as error:
        sweep.fail(unit, sentence(error))
    finally:
        sweep.beginning(unit).unlink(missing_ok=True)
        held.give_back()
    return True


def carry_out(sweep: Sweep, unit: Unit, device: str, progress: Silent, budget: Budget | None) -> None:
    """Run the unit as `remanence run` does."""
    in_turns = any(model.training.jitter for model in unit.experiment.models.values())
    together = sweep.together if in_turns else len(unit.seeds) or None
    way = Way(sweep.out(unit), device_named(device), budget or Budget(), together, progress)
    if unit.model:
        train_models(unit.experiment, way, [unit.model], list(unit.seeds))
    else:
        run(unit.experiment, way, sweep.grid.models, list(unit.seeds))


def sentence(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, torch.OutOfMemoryError):
        return "out of device memory; run fewer seeds at a time (--together)"
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, ValueError) and text.startswith("expected ") else f"{type(error).__name__}: {text}"


def do_all(sweep: Sweep, waiting: Sequence[Unit], device: str, owner: str, progress: Silent) -> None:
    """Run units, one after the other, until all are done or have failed.

    Waits for units that other processes run, and takes them over if these processes die.

    Args:
        sweep: Sweep of the units.
        waiting: Units to run.
        device: Device to run on.
        owner: Owner of the leases.
        progress: Progress display.
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
    """Run a unit of the sweep in a folder, or wait for the process that does: the task or job of a cluster."""
    sweep = Sweep.open(Path(folder))
    do_all(sweep, [sweep.named(name)], device, owner, Quiet())


def close(sweep: Sweep, device: str) -> None:
    """Finish a sweep whose units are done: write summaries of every point, and run analyses of its models."""
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
    """A worker process, as started by the local launcher: FOLDER DEVICE OWNER."""
    import sys

    folder, device, owner = sys.argv[1:]
    sweep = Sweep.open(Path(folder))
    try:
        do_all(sweep, sweep.units, device, owner, Quiet())
    except Stopped as stopped:
        raise SystemExit(stopped.code or 143) from None


if __name__ == "__main__":
    main()
