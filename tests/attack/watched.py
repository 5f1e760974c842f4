"""Tensors whose memory comes from malloc, which the address sanitizer watches; then the differential fuzzer.

Some builds of torch have an allocator of their own for the CPU, in whose memory a write past the end of a tensor is not
seen. The arrays of NumPy come from malloc: what engines make for their results and for their work is put there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

KINDS = {torch.float32: np.float32, torch.float64: np.float64, torch.int32: np.int32, torch.int64: np.int64}


def watched(original: Callable[..., Tensor], fill: Callable[..., Any]) -> Callable[..., Tensor]:
    """`torch.empty` or `torch.zeros` in watched memory, where the call is a plain one."""

    def make(*shape: Any, dtype: torch.dtype | None = None, device: Any = None, **more: Any) -> Tensor:
        kind = KINDS.get(dtype or torch.get_default_dtype())
        if more or kind is None or (device is not None and torch.device(device).type != "cpu"):
            return original(*shape, dtype=dtype, device=device, **more)
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return torch.from_numpy(fill(tuple(sizes), kind))

    return make


def like(original: Callable[..., Tensor], make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`torch.empty_like` or `torch.zeros_like`, where the call is a plain one."""

    def made(values: Tensor, **more: Any) -> Tensor:
        return original(values, **more) if more else make(values.shape, dtype=values.dtype, device=values.device)

    return made


# Before the package takes them over.
torch.empty, torch.zeros = watched(torch.empty, np.empty), watched(torch.zeros, np.zeros)
torch.empty_like, torch.zeros_like = like(torch.empty_like, torch.empty), like(torch.zeros_like, torch.zeros)

if __name__ == "__main__":
    from differential import main

    main()
