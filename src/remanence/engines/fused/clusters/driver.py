"""Machine code on a device: loading it, and starting it in clusters."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache

import torch

PORTABLE = 8
"""Programs of a cluster that every chip with clusters takes."""

# Numbers of CUDA's driver interface.
_SHARED_BYTES, _LARGE_CLUSTERS = 8, 14
_CLUSTER_DIMENSION = 4
_BUFFER, _BUFFER_SIZE = 1, 2


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


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
        with torch.cuda.device(device):
            _check(driver().cuModuleLoadData(ctypes.byref(self.module), code))
            _check(driver().cuModuleGetFunction(ctypes.byref(self.function), self.module, name.encode()))
            _check(driver().cuFuncSetAttribute(self.function, _SHARED_BYTES, shared))
            if cluster > PORTABLE:
                _check(driver().cuFuncSetAttribute(self.function, _LARGE_CLUSTERS, 1))
        self.attribute = _Attribute(_CLUSTER_DIMENSION, 0, (ctypes.c_uint * 16)(cluster, 1, 1))
        self.size = ctypes.c_size_t(self.pack.size)

    def start(self, clusters: int, *arguments: float) -> None:
        """Start it on the present stream.

        Args:
            clusters: how many.
            arguments: addresses and numbers.
        """
        if torch.cuda.current_device() != self.device.index:
            with torch.cuda.device(self.device):
                return self.start(clusters, *arguments)
        buffer = ctypes.c_char_p(self.pack.pack(*arguments))
        extra = (ctypes.c_void_p * 5)(
            _BUFFER, ctypes.cast(buffer, ctypes.c_void_p), _BUFFER_SIZE, ctypes.addressof(self.size), 0
        )
        config = self._config(clusters, torch.cuda.current_stream().cuda_stream)
        return _check(driver().cuLaunchKernelEx(ctypes.byref(config), self.function, None, extra))

    def at_once(self) -> int:
        """How many clusters the device runs at the same time; none if it cannot run one."""
        count = ctypes.c_int()
        config = self._config(1, None)
        with torch.cuda.device(self.device):
            _check(driver().cuOccupancyMaxActiveClusters(ctypes.byref(count), self.function, ctypes.byref(config)))
        return count.value

    def _config(self, clusters: int, stream: int | None) -> _Config:
        grid, block = (clusters * self.cluster, 1, 1), (self.threads, 1, 1)
        return _Config(grid, block, self.shared, stream, ctypes.pointer(self.attribute), 1)


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
