"""A job array of SLURM's, by submitit: a job for every unit, queued again when its time is over."""

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
"""Seconds between looks."""
TOLD = ("partition", "account", "qos", "constraint", "timeout_min", "mem_gb", "cpus_per_task")
"""Options that are handed on to SLURM."""
TIMES = 10_000
"""A job is queued again at most so often: units may take far longer than jobs. Submitit would stop at three."""
NUMBERS = ("timeout_min", "mem_gb", "cpus_per_task")
"""Those that are numbers."""


def expect(places: Places) -> None:
    """Submitit, and SLURM unless another cluster is named."""
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
        raise ValueError("expected SLURM on this machine, got none: there is no sbatch")


def launch(sweep: Sweep, places: Places, look: Look) -> None:
    """See `Launcher`. `workers` is how many jobs run at a time; `cluster=local` is submitit's own, without SLURM."""
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
            sweep.fail(unit, f"its job ended with {str(job.exception()).strip().partition(chr(10))[0]}")
    look()


class Job:
    """What a job does. When its time is over submitit asks for what goes on in its place: the same."""

    def __call__(self, folder: str, name: str, device: str) -> None:
        """Do a unit."""
        import os

        from remanence.sweeps.work import do_one, owner_of_this_process

        job = [os.environ[name] for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID") if name in os.environ]
        job = job if len(job) == 2 else [os.environ[name] for name in ("SLURM_JOB_ID",) if name in os.environ]
        # A job that is queued again has its number: then the process before is gone.
        with saving_first():
            do_one(folder, name, device, f"slurm:{'_'.join(job)}" if job else owner_of_this_process())

    def checkpoint(self, folder: str, name: str, device: str) -> Any:
        """What goes on."""
        return _submitit().helpers.DelayedSubmission(self, folder, name, device)


@contextmanager
def saving_first() -> Iterator[None]:
    """Let a training that is warned of the end of its time (USR2) save, before submitit has its job queued again."""
    from remanence.training import Stopped

    queue_again, usual = signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)
    if not callable(queue_again):  # nobody warns
        yield
        return
    warned = False

    def warn(number: int, frame: FrameType | None) -> None:
        nonlocal warned
        if signal.getsignal(signal.SIGTERM) == usual:  # nothing is trained at the moment
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
            f"expected submitit for this launcher, got: {error}; pip install 'remanence-rnn[slurm]' brings it"
        ) from None
    return submitit
