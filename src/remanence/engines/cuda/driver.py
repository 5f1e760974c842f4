"""Loads compiled kernels with the CUDA driver API and launches them in clusters."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch

PORTABLE = 8
"""Thread blocks per cluster that every GPU with clusters supports (the portable cluster size)."""

# Constants of the CUDA driver API.
_SHARED_BYTES, _LARGE_CLUSTERS = 8, 14
_CLUSTER_DIMENSION = 4
_BUFFER, _BUFFER_SIZE = 1, 2
_RELAXED = 2
_NO_CONTEXT = 201


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("", ctypes.c_int), ("value", ctypes.c_uint * 16))


# Launch arguments are packed by `struct`: ctypes structures cost several times as much host time.
_CONFIG = struct.Struct("@3I3II2PI0P")
"""CUlaunchConfig: grid, thread block, shared memory, stream, attributes and their number."""
_EXTRA = struct.Struct("@5P")
"""Address of the kernel parameters, and their size."""


class DriverError(RuntimeError):
    """A call of the CUDA driver API failed."""


class Kernel:
    """A kernel loaded on a device."""

    def __init__(
        self, code: bytes, name: str, signature: str, threads: int, cluster: int, shared: int, device: torch.device
    ):
        """Load a kernel.

        Args:
            code: Machine code (cubin).
            name: Name of the kernel in it.
            signature: Kernel parameters in the notation of `struct`: P for a pointer, i, f.
            threads: Threads per thread block.
            cluster: Thread blocks per cluster.
            shared: Bytes of shared memory per thread block.
            device: CUDA device.
        """
        self.device = device
        self.pack = struct.Struct(f"@{signature}")
        self.threads, self.cluster = threads, cluster
        self.shared = shared
        self.module = ctypes.c_void_p()
        self.function = ctypes.c_void_p()
        with torch.cuda.device(device), _anywhere(device):
            _check(driver().cuModuleLoadData(ctypes.byref(self.module), code))
            _check(driver().cuModuleGetFunction(ctypes.byref(self.function), self.module, name.encode()))
            _check(driver().cuFuncSetAttribute(self.function, _SHARED_BYTES, shared))
            if cluster > PORTABLE:
                _check(driver().cuFuncSetAttribute(self.function, _LARGE_CLUSTERS, 1))
        self.attribute = _Attribute(_CLUSTER_DIMENSION, 0, (ctypes.c_uint * 16)(cluster, 1, 1))
        self.size = ctypes.c_size_t(self.pack.size)
        self.parameters = ctypes.c_char * self.pack.size

    def start(self, clusters: int, *arguments: float) -> None:
        """Launch the kernel on the current stream.

        Args:
            clusters: Number of clusters.
            arguments: Kernel arguments: addresses and numbers.
        """
        if torch.cuda.current_device() != self.device.index:
            with torch.cuda.device(self.device):
                return self.start(clusters, *arguments)
        parameters = self.parameters.from_buffer_copy(self.pack.pack(*arguments))
        extra = _EXTRA.pack(_BUFFER, ctypes.addressof(parameters), _BUFFER_SIZE, ctypes.addressof(self.size), 0)
        # `torch.cuda.current_stream` creates an object, which takes as long as the launch itself.
        config = self._config(clusters, torch._C._cuda_getCurrentRawStream(self.device.index))
        status = driver().cuLaunchKernelEx(config, self.function, None, extra)
        if status == _NO_CONTEXT:
            _enter(self.device)
            status = driver().cuLaunchKernelEx(config, self.function, None, extra)
        return _check(status)

    def at_once(self) -> int:
        """Number of clusters that can be resident on the device at once; 0 if it cannot run one."""
        count = ctypes.c_int()
        with torch.cuda.device(self.device):
            _check(driver().cuOccupancyMaxActiveClusters(ctypes.byref(count), self.function, self._config(1, 0)))
        return count.value

    def _config(self, clusters: int, stream: int) -> bytes:
        grid, block = (clusters * self.cluster, 1, 1), (self.threads, 1, 1)
        return _CONFIG.pack(*grid, *block, self.shared, stream, ctypes.addressof(self.attribute), 1)


@contextmanager
def _anywhere(device: torch.device) -> Iterator[None]:
    """Allow loading a module in any thread and during CUDA graph capture, which normally forbids it."""
    mode = ctypes.c_int(_RELAXED)
    _check(driver().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))
    try:
        _enter(device)
        yield
    finally:
        _check(driver().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))


def _enter(device: torch.device) -> None:
    """Make torch's context current in this thread: torch does that on the first launch, which may be yet to come."""
    _check(driver().cuCtxSetCurrent(_context(device)))


@lru_cache
def _context(device: torch.device) -> ctypes.c_void_p:
    """The primary context of the device, which torch uses."""
    number, context = ctypes.c_int(), ctypes.c_void_p()
    _check(driver().cuDeviceGet(ctypes.byref(number), device.index))
    _check(driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
    return context


@lru_cache
def architecture(device: torch.device) -> str:
    """Name of the device's architecture, such as "sm_90"."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


@lru_cache
def driver() -> ctypes.CDLL:
    """The CUDA driver library, which torch has already loaded."""
    return ctypes.CDLL("libcuda.so.1")


def _check(status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        driver().cuGetErrorString(status, ctypes.byref(text))
        raise DriverError((text.value or str(status).encode()).decode())
