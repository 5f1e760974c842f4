"""A job array of SLURM's, by submitit: a job for every unit, queued again when its time is over."""

from __future__ import annotations

import shutil
import time
from typing import Any

from ..folder import Sweep
from ..places import Look, Places, expect_options

SLURM = "slurm"
MOMENT = 1.0
"""Seconds between looks."""
TOLD = ("partition", "account", "qos", "constraint", "timeout_min", "mem_gb", "cpus_per_task")
"""Options that are handed on to SLURM."""
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
    executor = submitit.AutoExecutor(folder=sweep.folder / "logs" / "%j", cluster=places.options.get("cluster", SLURM))
    parameters: dict[str, Any] = {
        "timeout_min": 60,
        "gpus_per_node": int(cuda),
        "slurm_array_parallelism": places.workers,
    }
    known = {name: value for name, value in places.options.items() if name in TOLD}
    for name, value in known.items():
        parameters |= {name: int(value)} if name in NUMBERS else {f"slurm_{name}": value}
    executor.update_parameters(name="remanence", **parameters)
    left = [unit for unit in sweep.units if not sweep.is_done(unit) and sweep.failure(unit) is None]
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
        from pathlib import Path

        from remanence.sweeps.folder import Sweep
        from remanence.sweeps.work import do_all, owner_of_this_process
        from remanence.training.progress import Quiet

        sweep = Sweep.open(Path(folder))
        unit = next(unit for unit in sweep.units if unit.name == name)
        job = [os.environ[name] for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID") if name in os.environ]
        job = job if len(job) == 2 else [os.environ[name] for name in ("SLURM_JOB_ID",) if name in os.environ]
        # A job that is queued again has its number: then the process before is gone.
        do_all(sweep, [unit], device, f"slurm:{'_'.join(job)}" if job else owner_of_this_process(), Quiet())

    def checkpoint(self, folder: str, name: str, device: str) -> Any:
        """What goes on."""
        return _submitit().helpers.DelayedSubmission(self, folder, name, device)


def _submitit() -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ValueError(
            f"expected submitit for this launcher, got: {error}; pip install 'remanence[slurm]' brings it"
        ) from None
    return submitit
