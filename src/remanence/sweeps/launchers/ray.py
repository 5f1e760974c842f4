"""One Ray task per unit, on any Ray cluster.

If a node dies, Ray restarts its tasks on other nodes, and they resume from their last checkpoints.
"""

from __future__ import annotations

import atexit
import socket
from typing import Any

from ..folder import Sweep
from ..places import Look, Places, expect_options

PATIENCE = 5.0
"""Seconds to wait for a cluster to answer."""
AGAIN = 10
"""How often a task whose node or process died is restarted."""


def expect(places: Places) -> None:
    """Ray, a reachable cluster, and GPUs if requested."""
    expect_options(places, "address")
    ray = _ray()
    if not ray.is_initialized():
        _expect_answer(places.options.get("address", ""))
        try:
            ray.init(address=places.options.get("address"), logging_level="ERROR", log_to_driver=False)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            raise ValueError(f"expected a reachable Ray cluster, got: {first}") from None
        atexit.register(ray.shutdown)
    if _on_gpus(places) and not ray.cluster_resources().get("GPU"):
        raise ValueError("expected a Ray cluster with GPUs, got one without; --devices cpu uses its CPUs")


def launch(sweep: Sweep, places: Places, look: Look) -> None:
    """See `Launcher`. `workers` tasks share a GPU; the option `address` is that of the Ray cluster."""
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
                except Exception as error:  # its process died too often, or was stopped
                    if not sweep.is_done(unit) and sweep.failure(unit) is None:
                        sweep.fail(unit, f"its Ray task failed: {str(error).strip().partition(chr(10))[0]}")
            look()
    finally:
        for one in waiting:
            ray.cancel(one)
    look()


def _expect_answer(address: str) -> None:
    """Refuse an address that does not answer: Ray would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise ValueError(f"expected a reachable Ray cluster, got none at {address}: {error}") from None


def _on_gpus(places: Places) -> bool:
    return places.devices[0].startswith("cuda")


def do_unit(folder: str, name: str, device: str) -> None:
    """The body of a Ray task."""
    import ray

    from remanence.sweeps.work import do_one

    # A restarted task has the same id, so it takes over the lease of its dead process.
    do_one(folder, name, device, f"ray:{ray.get_runtime_context().get_task_id()}")


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError(
            f"expected Ray for this launcher, got: {error}; install it with pip install 'remanence-rnn[ray]'"
        ) from None
    return ray
