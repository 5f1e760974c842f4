"""Linear maps of narrow layers to few outputs, of several replicas with many rows: outputs = hidden weight^T + bias.

N replicas, M rows, H units, O outputs. Such a product does hardly more than read and write its rows, and cuBLAS takes
two to four times as long as the memory. Here outputs are one launch and derivatives another, about as fast as a copy,
in full float32 whatever torch's settings say.
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
"""Units, at most: a warp has four in every thread."""
OUTPUTS = 16
"""At most: a thread has a column of the matrix for each of its units in registers, and the derivatives by them."""
PROGRAMS = 264
"""At least so many share the rows of all replicas: two for every processor of a large GPU."""
WARPS = 4
"""Of a program."""
STAGES, ROWS = 2, 8
"""What a warp has on chip: so many times so many rows, one of them at work, the others on the way."""


def suits(hidden: Tensor, width: int) -> bool:
    """Whether there are kernels for `(N, M, H)` and so many outputs."""
    units = hidden.shape[-1]
    return (
        hidden.is_cuda
        and hidden.dtype in NUMBERS
        and 4 <= units <= WIDEST
        and units % 4 == 0
        and 1 <= width <= OUTPUTS
        and hidden.data_ptr() % 16 == 0  # where four numbers can be read at once
        and lacks(hidden.device) is None
    )


def outputs(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """What comes out, `(N, M, O)`, of `(N, M, H)`, `(N, O, H)` and `(N, O)`: contiguous, of one dtype."""
    replicas, rows, units = hidden.shape
    width = weight.shape[1]
    found = hidden.new_empty(replicas, rows, width)
    parts = -(-PROGRAMS // replicas)
    kernel = _kernel("linear_forward", "4P2i", units, width, hidden.dtype, hidden.device)
    tensors = (hidden, weight, bias, found)
    kernel.start(replicas * parts, *(tensor.data_ptr() for tensor in tensors), rows, parts)
    return found


def slopes(hidden: Tensor, weight: Tensor, d_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives by what was given: by `hidden` in its dtype, by the others in float32."""
    replicas, rows, units = hidden.shape
    width = weight.shape[1]
    parts = -(-PROGRAMS // replicas)
    d_hidden = torch.empty_like(hidden)
    room = width * (units + 1) + lacking(width, 4)  # so that those of every replica begin with a whole vector
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
    """What the source leaves open."""
    return {"H": units, "O": width, "NUMBER": NUMBERS[dtype], "WARPS": WARPS, "STAGES": STAGES, "ROWS": ROWS}
