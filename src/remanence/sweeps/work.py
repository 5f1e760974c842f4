"""Doing units: one, or one after the other until nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import torch

from .. import files
from ..engines.machine import device_named
from ..experiments import Way
from ..experiments.runs import run, train_models
from ..training import Budget, Stopped
from ..training.progress import Silent
from . import lease
from .folder import Sweep
from .grid import Unit

Say = Callable[[str], None]
WAIT = 2.0
"""Seconds after which somebody who found nothing free looks again."""


def owner_of_this_process() -> str:
    """A name that no other process has, anywhere."""
    return f"{socket.gethostname()}:{os.getpid()}"


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
    files.write(sweep.beginning(unit), str(time.time()).encode())
    # What trains listens to signals in the main thread, saves, and raises `Stopped`.
    held.keep(lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        if not sweep.is_done(unit):
            carry_out(sweep, unit, device, progress, budget)
    except Stopped:
        if not held.lost:
            raise
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
        run(unit.experiment, way)


def sentence(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, torch.OutOfMemoryError):
        return "it needs more memory than the device has: fewer seeds at a time (--together) need less"
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, ValueError) and text.startswith("expected ") else f"{type(error).__name__}: {text}"


def do_all(sweep: Sweep, device: str, owner: str, progress: Silent, wait: bool = False) -> None:
    """Do one unit after the other until nothing is free.

    Args:
        sweep: what they are of.
        device: where.
        owner: who does them.
        progress: who is told.
        wait: whether to wait for what others do, and take it over should they be gone.
    """
    waiting = list(sweep.units)
    while waiting:
        worked = False
        for unit in list(waiting):
            if sweep.failure(unit) is not None or sweep.is_done(unit):
                waiting.remove(unit)
            elif do(sweep, unit, device, owner, progress):
                worked = True
        if not worked:
            if not wait:
                return
            time.sleep(WAIT)


def main() -> None:
    """A worker, as the local launcher starts it: FOLDER DEVICE OWNER."""
    import sys

    from ..training.progress import Quiet

    folder, device, owner = sys.argv[1:]
    try:
        do_all(Sweep.open(Path(folder)), device, owner, Quiet())
    except Stopped as stopped:
        raise SystemExit(stopped.code or 143) from None


if __name__ == "__main__":
    main()
