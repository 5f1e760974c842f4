"""The devices of this machine, and how precise float32 products on them are."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")
X86 = platform.machine().lower() in ("x86_64", "amd64")
"""Whether the CPU is one of these."""
ALIGNED = 16
"""Bytes: the rows of a matrix that the tensor cores multiply have a multiple of so many."""


def device_named(name: str | torch.device) -> torch.device:
    """The device of that name, if it is the CPU or a CUDA device of this machine."""
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
"""Seconds between attempts to use a device that others have for themselves for a moment."""


def wait_for(device: torch.device) -> None:
    """Return once a device can be used; one that cannot after a while is answered in a sentence."""
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
                    "nvidia-smi shows who uses it, and --device names another"
                ) from None
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def devices() -> list[torch.device]:
    """The CPU, and the present CUDA device where there is one."""
    found = [torch.device("cpu")]
    if torch.cuda.is_available():
        found.append(device_named("cuda"))
    return found


def described(device: torch.device) -> tuple[str, ...]:
    """What a device is, with its driver, as far as results can depend on it."""
    if device.type != "cuda":
        return device.type, platform.machine()
    major, minor = torch.cuda.get_device_capability(device)
    name, chip = torch.cuda.get_device_name(device), f"{major}.{minor}"
    return name, chip, f"CUDA {torch.version.cuda}, ROCm {torch.version.hip}", driver_version()


@lru_cache
def driver_version() -> str:
    """Of the driver of CUDA devices; empty where the system does not say."""
    with suppress(OSError):
        return Path("/proc/driver/nvidia/version").read_text("utf-8", "replace")
    return ""


@lru_cache
def processors(device: torch.device) -> int:
    """Streaming multiprocessors of a CUDA device; any other counts as one."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def threads(device: torch.device, most: int = 8) -> ThreadPoolExecutor:
    """Threads in which kernels for a CUDA device compile side by side.

    Each takes the device up before anything else: torch warns of a matrix product in a thread that has not.
    """
    return ThreadPoolExecutor(min(most, os.cpu_count() or 1), initializer=partial(torch.cuda.synchronize, device))


def tf32_in_recurrent_layers() -> bool:
    """Whether torch's settings ask for TF32 in float32 recurrent layers; the most special one counts."""
    for settings in (torch.backends.cudnn.rnn, torch.backends.cudnn, torch.backends):
        chosen = getattr(settings, "fp32_precision", "none")
        if chosen != "none":
            return bool(chosen == "tf32")
    return False


def lacking(width: int, itemsize: int) -> int:
    """How many numbers of so many bytes a row of this width lacks for the tensor cores to take it."""
    return -width % (ALIGNED // itemsize)


def matrix_products(tf32: bool) -> AbstractContextManager[None]:
    """Let float32 matrix products on CUDA devices be TF32 or full float32."""
    return _precision(tf32, torch.backends.cuda.matmul)


def float32_products(tf32: bool) -> AbstractContextManager[None]:
    """Let float32 products on CUDA devices, inside recurrent layers and outside, be TF32 or full float32."""
    return _precision(tf32, torch.backends.cudnn.rnn, torch.backends.cuda.matmul)


@contextmanager
def _precision(tf32: bool, *settings: Any) -> Iterator[None]:
    wanted = "tf32" if tf32 else "ieee"
    others = [(setting, before) for setting in settings if (before := setting.fp32_precision) != wanted]
    try:
        for setting, _ in others:
            setting.fp32_precision = wanted
        yield
    finally:
        for setting, before in others:
            setting.fp32_precision = before
