"""Machine code on a device: loading it, and starting it in clusters."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch

PORTABLE = 8
"""Programs of a cluster that every chip with clusters takes."""

# Numbers of CUDA's driver interface.
_SHARED_BYTES, _LARGE_CLUSTERS = 8, 14
_CLUSTER_DIMENSION = 4
_BUFFER, _BUFFER_SIZE = 1, 2
_RELAXED = 2
_NO_CONTEXT = 201


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("", ctypes.c_int), ("value", ctypes.c_uint * 16))


# What every start needs, packed: structures of ctypes take the host several times as long.
_CONFIG = struct.Struct("@3I3II2PI0P")
"""CUlaunchConfig: programs, threads, shared memory, stream, attributes and their number."""
_EXTRA = struct.Struct("@5P")
"""Where the parameters are, and their size."""


class DriverError(RuntimeError):
    """The driver refuses something."""


class Kernel:
    """A kernel on a device."""

    def __init__(
        self, code: bytes, name: str, signature: str, threads: int, cluster: int, shared: int, device: torch.device
    ):
        """Load it.

        Args:
            code: machine code.
            name: of the kernel in it.
            signature: its parameters as `struct` names them: P for a pointer, i, f.
            threads: of a program.
            cluster: how many programs form a cluster.
            shared: bytes of shared memory of a program.
            device: where.
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
        """Start it on the present stream.

        Args:
            clusters: how many.
            arguments: addresses and numbers.
        """
        if torch.cuda.current_device() != self.device.index:
            with torch.cuda.device(self.device):
                return self.start(clusters, *arguments)
        parameters = self.parameters.from_buffer_copy(self.pack.pack(*arguments))
        extra = _EXTRA.pack(_BUFFER, ctypes.addressof(parameters), _BUFFER_SIZE, ctypes.addressof(self.size), 0)
        # `torch.cuda.current_stream` makes an object, which takes as long as the start itself.
        config = self._config(clusters, torch._C._cuda_getCurrentRawStream(self.device.index))
        status = driver().cuLaunchKernelEx(config, self.function, None, extra)
        if status == _NO_CONTEXT:
            _enter(self.device)
            status = driver().cuLaunchKernelEx(config, self.function, None, extra)
        return _check(status)

    def at_once(self) -> int:
        """How many clusters the device runs at the same time; none if it cannot run one."""
        count = ctypes.c_int()
        with torch.cuda.device(self.device):
            _check(driver().cuOccupancyMaxActiveClusters(ctypes.byref(count), self.function, self._config(1, 0)))
        return count.value

    def _config(self, clusters: int, stream: int) -> bytes:
        grid, block = (clusters * self.cluster, 1, 1), (self.threads, 1, 1)
        return _CONFIG.pack(*grid, *block, self.shared, stream, ctypes.addressof(self.attribute), 1)


@contextmanager
def _anywhere(device: torch.device) -> Iterator[None]:
    """Let machine code be loaded in any thread, and while a graph is captured, which would forbid it."""
    mode = ctypes.c_int(_RELAXED)
    _check(driver().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))
    try:
        _enter(device)
        yield
    finally:
        _check(driver().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))


def _enter(device: torch.device) -> None:
    """Let this thread use the device: torch sees to that when it first starts something, and may not have yet."""
    _check(driver().cuCtxSetCurrent(_context(device)))


@lru_cache
def _context(device: torch.device) -> ctypes.c_void_p:
    """That of torch on the device."""
    number, context = ctypes.c_int(), ctypes.c_void_p()
    _check(driver().cuDeviceGet(ctypes.byref(number), device.index))
    _check(driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
    return context


@lru_cache
def architecture(device: torch.device) -> str:
    """What its machine code is called."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


@lru_cache
def driver() -> ctypes.CDLL:
    """CUDA's driver, which torch has loaded."""
    return ctypes.CDLL("libcuda.so.1")


def _check(status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        driver().cuGetErrorString(status, ctypes.byref(text))
        raise DriverError((text.value or str(status).encode()).decode())
