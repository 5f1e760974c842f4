"""Where a run was started."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..version import __version__
from .directory import now
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
