"""A SLURM job array through submitit: one job per unit, requeued when its time limit is reached."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ..folder import Sweep
from ..places import Look, Places, expect_options

SLURM = "slurm"
MOMENT = 1.0
"""Seconds between polls."""
TOLD = ("partition", "account", "qos", "constraint", "timeout_min", "mem_gb", "cpus_per_task")
"""Options passed on to SLURM."""
TIMES = 10_000
"""How often a job may be requeued: units may take much longer than jobs. The default of submitit is three."""
NUMBERS = ("timeout_min", "mem_gb", "cpus_per_task")
"""Options that are numbers."""


def expect(places: Places) -> None:
    """Submitit, and SLURM unless the option cluster names another."""
    expect_options(places, "cluster", *TOLD)
    for name in NUMBERS:
        value = places.options.get(name, "1")
        if not value.isdigit() or int(value) < 1:
            raise ValueError(f"expected the option {name} to be a positive number, got {value!r}")
    _submitit()
    cluster = places.options.get("cluster", SLURM)
    if cluster not in (SLURM, "local"):
        raise ValueError(f"expected the option cluster to be {SLURM} or local, got {cluster!r}")
    if cluster == SLURM and shutil.which("sbatch") is None:
        raise ValueError("expected SLURM on this machine, got none: sbatch was not found")


def launch(sweep: Sweep, places: Places, look: Look) -> None:
    """See `Launcher`. At most `workers` jobs run at a time; `cluster=local` runs local processes, without SLURM."""
    submitit = _submitit()
    cuda = places.devices[0].startswith("cuda")
    executor = submitit.AutoExecutor(
        folder=sweep.folder / "logs" / "%j",
        cluster=places.options.get("cluster", SLURM),
        slurm_max_num_timeout=TIMES,
    )
    parameters: dict[str, Any] = {
        "timeout_min": 60,
        "gpus_per_node": int(cuda),
        "slurm_array_parallelism": places.workers,
    }
    for name, value in places.options.items():
        if name in TOLD:
            parameters |= {name: int(value)} if name in NUMBERS else {f"slurm_{name}": value}
    executor.update_parameters(name="remanence", **parameters)
    left = sweep.left
    device = "cuda" if cuda else "cpu"
    folder = str(sweep.folder.resolve())
    jobs = executor.map_array(Job(), [folder] * len(left), [unit.name for unit in left], [device] * len(left))
    try:
        while not all(job.done() for job in jobs):
            time.sleep(MOMENT)
            look()
    except BaseException:
        for job in jobs:
            job.cancel(check=False)
        raise
    for unit, job in zip(left, jobs, strict=True):
        if job.exception() is not None and not sweep.is_done(unit) and sweep.failure(unit) is None:
            sweep.fail(unit, f"its job failed: {str(job.exception()).strip().partition(chr(10))[0]}")
    look()


class Job:
    """The body of a job. At its time limit, submitit calls `checkpoint` for the job to requeue: the same one."""

    def __call__(self, folder: str, name: str, device: str) -> None:
        """Run a unit."""
        import os

        from remanence.sweeps.work import do_one, owner_of_this_process

        job = [os.environ[name] for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID") if name in os.environ]
        job = job if len(job) == 2 else [os.environ[name] for name in ("SLURM_JOB_ID",) if name in os.environ]
        # A requeued job keeps its id, so it takes over the lease of its dead process.
        with saving_first():
            do_one(folder, name, device, f"slurm:{'_'.join(job)}" if job else owner_of_this_process())

    def checkpoint(self, folder: str, name: str, device: str) -> Any:
        """The job to requeue."""
        return _submitit().helpers.DelayedSubmission(self, folder, name, device)


@contextmanager
def saving_first() -> Iterator[None]:
    """On SIGUSR2, the warning before the time limit, let training save before submitit requeues its job."""
    from remanence.training import Stopped

    queue_again, usual = signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)
    if not callable(queue_again):  # no handler: submitit does not warn
        yield
        return
    warned = False

    def warn(number: int, frame: FrameType | None) -> None:
        nonlocal warned
        if signal.getsignal(signal.SIGTERM) == usual:  # no training at the moment
            queue_again(number, frame)
            return
        warned = True
        signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGUSR2, warn)
    try:
        yield
    except Stopped:
        if not warned:
            raise
        queue_again(signal.SIGUSR2, None)
    finally:
        signal.signal(signal.SIGUSR2, queue_again)


def _submitit() -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ValueError(
            f"expected submitit for this launcher, got: {error}; install it with pip install 'remanence-rnn[slurm]'"
        ) from None
    return submitit
