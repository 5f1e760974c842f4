"""The devices of this machine, and the precision of their float32 matmuls."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")
X86 = platform.machine().lower() in ("x86_64", "amd64")
"""Whether the CPU is x86-64."""
ALIGNED = 16
"""Alignment in bytes that tensor cores require of the rows of a matrix."""
PRODUCTS = torch.backends.cuda.matmul
"""Torch's settings of matmuls. Looking them up in torch takes as long as a tensor operation."""
RECURRENT = (torch.backends.cudnn.rnn, torch.backends.cudnn, torch.backends)
"""Torch's settings of recurrent layers, the most specific first."""
UNCHANGED = nullcontext()


def memory() -> int:
    """Bytes of main memory that this process may use; 0 where the system does not say."""
    with suppress(AttributeError, ValueError, OSError):
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with suppress(ValueError, OSError):  # a container may use less; without a limit the file says "max"
            return min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
        return whole
    return 0


def device_named(name: str | torch.device) -> torch.device:
    """The device with this name, which must be the CPU or a CUDA device of this machine."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"expected device to be cpu, cuda or cuda:N, got {str(name)!r}")
    if device.type == "cpu":
        return torch.device("cpu")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= found:
        there = "no CUDA device" if found == 0 else f"CUDA devices 0 to {found - 1}"
        raise ValueError(f"expected a device of this machine, got {str(name)!r}, and torch sees {there}")
    present = _patiently(torch.cuda.current_device, device) if device.index is None else device.index
    return torch.device("cuda", present)


PAUSES = (1.0, 4.0, 15.0)
"""Seconds between attempts to use a device that another process holds exclusively for a moment."""


def wait_for(device: torch.device) -> None:
    """Wait until a device can be used; raises ValueError if it stays unavailable."""
    if device.type == "cuda":
        _patiently(partial(torch.zeros, 1, device=device), device)


def _patiently(use: Callable[[], Value], device: torch.device) -> Value:
    for pause in (*PAUSES, None):
        try:
            return use()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            problem = str(error).partition("\n")[0]
            if pause is None or "unavailable" not in problem:
                raise ValueError(
                    f"expected {device} to be ready, got: {problem}; "
                    "nvidia-smi shows which processes use it; --device selects another"
                ) from None
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def devices() -> list[torch.device]:
    """The CPU and, if there is one, the current CUDA device."""
    found = [torch.device("cpu")]
    if torch.cuda.is_available():
        found.append(device_named("cuda"))
    return found


def described(device: torch.device) -> tuple[str, ...]:
    """Model, architecture and driver of a device, as far as results can depend on them."""
    if device.type != "cuda":
        return device.type, platform.machine()
    major, minor = torch.cuda.get_device_capability(device)
    name, chip = torch.cuda.get_device_name(device), f"{major}.{minor}"
    return name, chip, f"CUDA {torch.version.cuda}, ROCm {torch.version.hip}", driver_version()


@lru_cache
def driver_version() -> str:
    """Version of the CUDA driver; empty if unknown."""
    with suppress(OSError):
        return Path("/proc/driver/nvidia/version").read_text("utf-8", "replace")
    return ""


@lru_cache
def processors(device: torch.device) -> int:
    """Number of SMs (streaming multiprocessors) of a CUDA device; 1 for any other device."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def threads(device: torch.device, most: int = 8) -> ThreadPoolExecutor:
    """A pool of threads that compile kernels for a CUDA device in parallel.

    Each thread initialises the device first, because torch warns about a matmul in a thread without a CUDA context.
    """
    return ThreadPoolExecutor(min(most, os.cpu_count() or 1), initializer=partial(torch.cuda.synchronize, device))


def tf32_in_recurrent_layers() -> bool:
    """Whether torch's settings allow TF32 in float32 recurrent layers; the most specific setting wins."""
    for settings in RECURRENT:
        chosen = getattr(settings, "fp32_precision", "none")
        if chosen != "none":
            return bool(chosen == "tf32")
    return False


def lacking(width: int, itemsize: int) -> int:
    """Number of elements of padding that a row of this width needs to be aligned for tensor cores."""
    return -width % (ALIGNED // itemsize)


def matrix_products(tf32: bool) -> AbstractContextManager[None]:
    """Select TF32 or full float32 for float32 matmuls on CUDA devices."""
    return UNCHANGED if PRODUCTS.fp32_precision == _setting(tf32) else _precision(tf32, PRODUCTS)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the CPU's default generator inside the block; `torch.manual_seed` would also seed all devices."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        yield


def float32_products(tf32: bool) -> AbstractContextManager[None]:
    """Select TF32 or full float32 for float32 matmuls on CUDA devices, inside and outside recurrent layers."""
    return _precision(tf32, torch.backends.cudnn.rnn, torch.backends.cuda.matmul)


def _setting(tf32: bool) -> str:
    return "tf32" if tf32 else "ieee"


@contextmanager
def _precision(tf32: bool, *settings: Any) -> Iterator[None]:
    wanted = _setting(tf32)
    others = [(setting, before) for setting in settings if (before := setting.fp32_precision) != wanted]
    try:
        for setting, _ in others:
            setting.fp32_precision = wanted
        yield
    finally:
        for setting, before in others:
            setting.fp32_precision = before
