"""A task of Ray's for every unit, on whatever cluster there is.

A node that dies gives its units back: Ray starts the task again elsewhere, and it goes on from the last checkpoint.
"""

from __future__ import annotations

import atexit
import socket
from typing import Any

from ..folder import Sweep
from ..places import Look, Places, expect_options

PATIENCE = 5.0
"""Seconds for a cluster to answer."""
AGAIN = 10
"""How often a task whose node or process died is started again."""


def expect(places: Places) -> None:
    """Ray, a cluster that can be reached, and GPUs where they are asked for."""
    expect_options(places, "address")
    ray = _ray()
    if not ray.is_initialized():
        _expect_answer(places.options.get("address", ""))
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
    folder = str(sweep.folder.resolve())
    waiting = {task.remote(folder, unit.name, "cuda" if cuda else "cpu"): unit for unit in sweep.left}
    try:
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=1.0)
            for one in done:
                unit = waiting.pop(one)
                try:
                    ray.get(one)
                except Exception as error:  # its process died too often, or was told to stop
                    if not sweep.is_done(unit) and sweep.failure(unit) is None:
                        sweep.fail(unit, f"its task ended with {str(error).strip().partition(chr(10))[0]}")
            look()
    finally:
        for one in waiting:
            ray.cancel(one)
    look()


def _expect_answer(address: str) -> None:
    """Refuse a machine that does not answer: Ray would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise ValueError(f"expected a cluster of Ray that can be reached, got none at {address}: {error}") from None


def _on_gpus(places: Places) -> bool:
    return places.devices[0].startswith("cuda")


def do_unit(folder: str, name: str, device: str) -> None:
    """What a task does."""
    import ray

    from remanence.sweeps.work import do_one

    # The same name when it is started again: then the process before is gone.
    do_one(folder, name, device, f"ray:{ray.get_runtime_context().get_task_id()}")


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError(
            f"expected Ray for this launcher, got: {error}; pip install 'remanence-rnn[ray]' brings it"
        ) from None
    return ray
