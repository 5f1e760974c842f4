"""Where a run was started."""

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


def describe(device: torch.device, ranks: Ranks | None = None) -> dict[str, Any]:
    """Device, versions, threads, processes, command and date."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": str(device),
        "name": name,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": 1 if ranks is None else ranks.size,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "remanence": __version__,
        "command": shlex.join([name_of_program(), *sys.argv[1:]]),
        "started": now(),
    }


def name_of_program() -> str:
    """What was started, without its folder."""
    name = os.path.basename(sys.argv[0])
    return "remanence" if name == "__main__.py" else name


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads: sums on a CPU depend on their number."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def choose_engines(replicas: Sequence[Replica], wanted: str | None, say: Say, ranks: Ranks) -> None:
    """Let models run on the engine their runs began with, and note it where they begin.

    Args:
        replicas: models of runs whose folders are held.
        wanted: an engine to use instead, in place of the one it began with, too; None to choose.
        say: who is told of a change.
        ranks: who train together. The first reads and writes what was noted.

    Raises:
        RunError: the engine that a run began with cannot run it any more.
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
        now = engines_of(layers, batch)
        if known is not None and known != now:
            if wanted is None:
                _restore_engines(layers, known, now, batch, replica)
                now = known
            else:
                say(
                    f"{replica.run}: goes on with engine {wanted}, and was begun with {_words(known)}; "
                    "results differ in their last digits from those of a run with one engine"
                )
        replica.engines = now
        replica.directory.note(engines=now)


def layers_of(model: nn.Module) -> list[Recurrent]:
    """The recurrent layers of a model."""
    return [module for module in model.modules() if isinstance(module, Recurrent)]


def engines_of(layers: Sequence[Recurrent], batch: int) -> list[str]:
    """The engine that each of these layers trains with."""
    with torch.enable_grad():
        return [choose(layer.engine, layer.example_task(batch=batch)).name for layer in layers]


def recorded_engines(directory: Directory, count: int) -> list[str] | None:
    """The engines of so many layers that a run was begun with; None where nobody noted them."""
    found = directory.begun_with("engines")
    valid = isinstance(found, list) and len(found) == count and all(isinstance(name, str) for name in found)
    return found if valid else None


def _restore_engines(
    layers: Sequence[Recurrent], known: list[str], now: list[str], batch: int, replica: Replica
) -> None:
    try:
        for layer, name in zip(layers, known, strict=True):
            layer.engine = check_name(name)
        engines_of(layers, batch)
    except ValueError as error:
        reason = str(error).partition(", but ")[2] or str(error)
        raise RunError(
            f"expected engine {_words(known)} for {replica.directory.path}, which was begun with it, but {reason}; "
            f"--engine {now[0]} goes on without it, and results then differ in their last digits"
        ) from None


def _words(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))
