"""Linear layers from narrow hidden states to few outputs, with many rows: outputs = hidden weight^T + bias.

N replicas, M rows, H units, O outputs. Such a matmul is bound by memory bandwidth, and cuBLAS takes two to four times
as long as that bound. Here outputs take one launch and gradients another, about as fast as a copy, in full float32
whatever torch's settings are.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ..machine import lacking
from .compiler import machine_code
from .device import lacks
from .driver import Kernel, architecture
from .recurrence import NUMBERS

WIDEST = 128
"""Largest number of units: a warp has four per thread."""
OUTPUTS = 16
"""Largest number of outputs: a thread holds the weights of its units and their gradients in registers."""
PROGRAMS = 264
"""Smallest number of thread blocks that share the rows of all replicas: two per SM of a large GPU."""
WARPS = 4
"""Warps per thread block."""
STAGES, ROWS = 2, 8
"""Pipeline of a warp in shared memory: STAGES stages of ROWS rows, one in use while the others are being prefetched."""


def suits(hidden: Tensor, width: int) -> bool:
    """Whether there are kernels for `(N, M, H)` and this number of outputs."""
    units = hidden.shape[-1]
    return (
        hidden.is_cuda
        and hidden.dtype in NUMBERS
        and 4 <= units <= WIDEST
        and units % 4 == 0
        and 1 <= width <= OUTPUTS
        and hidden.data_ptr() % 16 == 0  # aligned for loads of four elements
        and lacks(hidden.device) is None
    )


def outputs(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Outputs `(N, M, O)` from `(N, M, H)`, `(N, O, H)` and `(N, O)`: contiguous, all of the same dtype."""
    replicas, rows, units = hidden.shape
    width = weight.shape[1]
    found = hidden.new_empty(replicas, rows, width)
    parts = -(-PROGRAMS // replicas)
    kernel = _kernel("linear_forward", "4P2i", units, width, hidden.dtype, hidden.device)
    tensors = (hidden, weight, bias, found)
    kernel.start(replicas * parts, *(tensor.data_ptr() for tensor in tensors), rows, parts)
    return found


def slopes(hidden: Tensor, weight: Tensor, d_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `hidden`, in its dtype, and of weight and bias, in float32."""
    replicas, rows, units = hidden.shape
    width = weight.shape[1]
    parts = -(-PROGRAMS // replicas)
    d_hidden = torch.empty_like(hidden)
    room = width * (units + 1) + lacking(width, 4)  # padded, so that the sums of every replica are aligned
    sums = torch.empty(replicas, parts, room, dtype=torch.float32, device=hidden.device)
    kernel = _kernel("linear_backward", "5P2i", units, width, hidden.dtype, hidden.device)
    tensors = (hidden, weight, d_outputs, d_hidden, sums)
    kernel.start(replicas * parts, *(tensor.data_ptr() for tensor in tensors), rows, parts)
    total = sums.sum(1)
    d_weight = total[:, : width * units].view(replicas, width, units)
    return d_hidden, d_weight, total[:, width * units : width * (units + 1)]


@cache
def _kernel(name: str, signature: str, units: int, width: int, dtype: torch.dtype, device: torch.device) -> Kernel:
    code = machine_code(name, constants(units, width, dtype), architecture(device))
    hidden, d_outputs = STAGES * ROWS * 4 * 32 * dtype.itemsize, -(-ROWS * width // 4) * 16
    return Kernel(code, name, signature, 32 * WARPS, 1, WARPS * (hidden + d_outputs), device)


def constants(units: int, width: int, dtype: torch.dtype) -> dict[str, int | str]:
    """Preprocessor constants of the kernels."""
    return {"H": units, "O": width, "NUMBER": NUMBERS[dtype], "WARPS": WARPS, "STAGES": STAGES, "ROWS": ROWS}
