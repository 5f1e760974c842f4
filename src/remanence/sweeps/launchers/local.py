"""Local worker processes, each running one unit after the other."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ...training.interruption import stop_processes
from .. import lease
from ..folder import Sweep
from ..places import Look, Places, expect_options

AGAIN = 3
"""How often a worker that died during the same unit is restarted."""
PATIENCE = 30.0
"""Seconds that workers have to save their work."""
MOMENT = 0.5
"""Seconds between polls."""


@dataclass
class Worker:
    """A worker process, and its name as owner of leases."""

    device: str
    owner: str
    process: subprocess.Popen[bytes]


def expect(places: Places) -> None:
    """The local machine needs nothing; only options are checked."""
    expect_options(places)


def launch(sweep: Sweep, places: Places, look: Look) -> None:
    """See `Launcher`."""
    slots = [device for _ in range(places.workers) for device in places.devices]
    threads = max(1, (os.cpu_count() or 1) // len(slots))
    workers: list[Worker] = []
    deaths: dict[str, int] = {}
    in_vain = 0
    try:
        for device in slots[: len(sweep.left)]:
            workers += [start(sweep, device, threads)]  # one by one: a signal stops those already started
        while workers:
            time.sleep(MOMENT)
            look()
            for worker in [one for one in workers if one.process.poll() is not None]:
                workers.remove(worker)
                if worker.process.returncode == 0:
                    continue
                doing = [unit for unit in sweep.units if (lease.look(sweep.lease(unit)) or ("",))[0] == worker.owner]
                in_vain = 0 if doing else in_vain + 1
                if in_vain > AGAIN:
                    log = log_of(sweep, worker.owner)
                    raise ValueError(f"expected workers to start, got {in_vain} that ended at once; see {log}")
                for unit in doing:  # release the lease at once: its worker is dead
                    sweep.lease(unit).unlink(missing_ok=True)
                    deaths[unit.name] = deaths.get(unit.name, 0) + 1
                    if deaths[unit.name] > AGAIN and sweep.failure(unit) is None:
                        times, code = deaths[unit.name], worker.process.returncode
                        sweep.fail(
                            unit,
                            f"its process died {times} times, with code {code}; see {log_of(sweep, worker.owner)}",
                        )
                workers.append(start(sweep, worker.device, threads))
    finally:
        stop_processes([worker.process for worker in workers], PATIENCE)
    look()


def start(sweep: Sweep, device: str, threads: int) -> Worker:
    """Start a worker."""
    owner = f"{socket.gethostname()}:{secrets.token_hex(4)}"
    log = log_of(sweep, owner)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "remanence.sweeps.work", str(sweep.folder), device, owner]
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    with log.open("ab") as file:
        # In its own session: Ctrl-C goes only to the launcher, which asks the workers to save.
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
    return Worker(device, owner, process)


def log_of(sweep: Sweep, owner: str) -> Path:
    """The log file of a worker."""
    return sweep.folder / "logs" / f"{owner.replace(':', '-')}.log"
