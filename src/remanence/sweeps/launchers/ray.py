"""A task of Ray's for every unit, on whatever cluster there is.

A node that dies gives its units back: Ray starts the task again elsewhere, and it goes on from the last checkpoint.
"""

from __future__ import annotations

import atexit
from typing import Any

from ..folder import Sweep
from ..places import Look, Places

AGAIN = 10
"""How often a task whose node or process died is started again."""


def expect(places: Places) -> None:
    """Ray, a cluster that can be reached, and GPUs where they are asked for."""
    ray = _ray()
    if not ray.is_initialized():
        try:
            ray.init(address=places.options.get("address"), logging_level="ERROR", log_to_driver=False)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            raise ValueError(f"expected a cluster of Ray that can be reached, got: {first}") from None
        atexit.register(ray.shutdown)
    if _on_gpus(places) and not ray.cluster_resources().get("GPU"):
        raise ValueError("expected a cluster of Ray with GPUs, got one without; --devices cpu uses its processors")


def launch(sweep: Sweep, places: Places, look: Look) -> None:
    """See `Launcher`. `workers` is how many share a GPU; the option `address` is Ray's, if it is not the usual."""
    ray, cuda = _ray(), _on_gpus(places)
    resources = {"num_gpus": 1 / places.workers, "num_cpus": 0} if cuda else {"num_cpus": 1}
    task = ray.remote(**resources, max_retries=AGAIN)(do_unit)
    left = [unit for unit in sweep.units if not sweep.is_done(unit) and sweep.failure(unit) is None]
    folder = str(sweep.folder.resolve())
    waiting = [task.remote(folder, unit.name, "cuda" if cuda else "cpu") for unit in left]
    try:
        while waiting:
            done, waiting = ray.wait(waiting, timeout=1.0)
            for one in done:
                ray.get(one)
            look()
    finally:
        for one in waiting:
            ray.cancel(one)
    look()


def _on_gpus(places: Places) -> bool:
    return places.devices[0].startswith("cuda")


def do_unit(folder: str, name: str, device: str) -> None:
    """What a task does."""
    from pathlib import Path

    import ray

    from remanence.sweeps.folder import Sweep
    from remanence.sweeps.work import do
    from remanence.training.progress import Quiet

    sweep = Sweep.open(Path(folder))
    unit = next(unit for unit in sweep.units if unit.name == name)
    # The same name when it is started again: then the process before is gone.
    do(sweep, unit, device, f"ray:{ray.get_runtime_context().get_task_id()}", Quiet())


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError(
            f"expected Ray for this launcher, got: {error}; pip install 'remanence[ray]' brings it"
        ) from None
    return ray
