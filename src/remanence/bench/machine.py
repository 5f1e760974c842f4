"""Description of the machine that a benchmark ran on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import torch

from ..engines.cpp.compiler import compiler
from ..engines.kernels.machine_code import CompilerError
from ..version import __version__


def describe(device: torch.device) -> dict[str, str]:
    """Hardware and relevant versions, by name."""
    found = {"device": processor()}
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory / 2**30
        found = {"device": f"{torch.cuda.get_device_name(device)} ({memory:.0f} GiB)", "processor": processor()}
    found |= {
        "threads": f"{torch.get_num_threads()} on {os.cpu_count()} cores",
        "load": load(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": version("triton"),
    }
    if device.type == "cuda":
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        found |= {"cuda": str(torch.version.cuda), "cudnn": str(cudnn)}
    else:
        found["compiler"] = compiler_name()
    return found | {
        "remanence": __version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def compiler_name() -> str:
    """The C++ compiler that the engine "c++" uses."""
    try:
        return compiler()[1].partition("\n")[0]
    except CompilerError:
        return "none"


def processor() -> str:
    """The name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine() or "unknown"


def load() -> str:
    """Load average before the benchmark: ratios from a busy machine mean little."""
    try:
        return f"{os.getloadavg()[0]:.1f} (1-minute average before the run)"
    except (AttributeError, OSError):  # not on every system
        return "unknown"


def version(package: str) -> str:
    """The installed version of a package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
