"""The hardware, threads and engines of a run.

They affect the bits of the results, so a run that resumes keeps the number of threads and the engines it started with.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..engines import check_name, choose
from ..nn.recurrent import Recurrent
from ..version import __version__
from .directory import Directory
from .files import RunError, Say, now
from .population import Replica
from .ranks import Ranks


def describe(device: torch.device, ranks: Ranks | None = None, turns: int = 1) -> dict[str, Any]:
    """Device, versions, threads, processes, number of runs or stacks of runs that take turns, command and date."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": str(device),
        "name": name,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": 1 if ranks is None else ranks.size,
        "turns": turns,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "remanence": __version__,
        "command": shlex.join([name_of_program(), *sys.argv[1:]]),
        "started": now(),
    }


def name_of_program() -> str:
    """Name of the running program, without its folder."""
    name = os.path.basename(sys.argv[0])
    return "remanence" if name == "__main__.py" else name


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Use this many threads: on a CPU, the rounding of reductions depends on their number."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def choose_engines(replicas: Sequence[Replica], wanted: str | None, say: Say, ranks: Ranks) -> None:
    """Let models use the engines their runs were started with; for new runs, choose engines and record them.

    Args:
        replicas: Replicas whose folders are locked.
        wanted: Engine to use instead, even for a run that was started with another; None to choose.
        say: Reports a change of engine.
        ranks: Ranks that train together. The first reads and writes the record.

    Raises:
        RunError: The engine that a run was started with can no longer run it.
    """
    noted = ranks.told(lambda: [recorded_engines(each.directory, len(layers_of(each.model))) for each in replicas])
    ranks.alike(lambda: _choose_engines(replicas, wanted, say, noted))


def _choose_engines(
    replicas: Sequence[Replica], wanted: str | None, say: Say, noted: Sequence[list[str] | None]
) -> None:
    for replica, known in zip(replicas, noted, strict=True):
        layers = layers_of(replica.model)
        if wanted is not None:
            for layer in layers:
                layer.engine = check_name(wanted)
        batch = replica.run.config.batch
        current = engines_of(layers, batch)
        if known is not None and known != current:
            if wanted is None:
                _restore_engines(layers, known, current, batch, replica)
                current = known
            else:
                say(
                    f"{replica.run}: resumes with engine {wanted}, but was started with {_words(known)}; "
                    "results will differ by rounding from those of a single engine"
                )
        replica.engines = current
        replica.directory.note(engines=current)


def layers_of(model: nn.Module) -> list[Recurrent]:
    """The recurrent layers of a model."""
    return [module for module in model.modules() if isinstance(module, Recurrent)]


def engines_of(layers: Sequence[Recurrent], batch: int) -> list[str]:
    """The engine that trains each of these layers."""
    with torch.enable_grad():
        return [choose(layer.engine, layer.example_task(batch=batch)).name for layer in layers]


def recorded_engines(directory: Directory, count: int) -> list[str] | None:
    """The engines of `count` layers that a run was started with; None if they were not recorded."""
    found = directory.begun_with("engines")
    valid = isinstance(found, list) and len(found) == count and all(isinstance(name, str) for name in found)
    return found if valid else None


def _restore_engines(
    layers: Sequence[Recurrent], known: list[str], current: list[str], batch: int, replica: Replica
) -> None:
    try:
        for layer, name in zip(layers, known, strict=True):
            layer.engine = check_name(name)
        engines_of(layers, batch)
    except ValueError as error:
        reason = str(error).partition(", but ")[2] or str(error)
        raise RunError(
            f"expected engine {_words(known)} for {replica.directory.path}, which was started with it, but {reason}; "
            f"--engine {current[0]} resumes without it, and results will differ by rounding"
        ) from None


def _words(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))
