"""A memory pool for the tensors that a training step on a CPU saves, reused by the next step.

The operating system reclaims freed blocks of this size, and maps new zeroed pages in the next step: on x86 17 ms for
50 MB, where writing them takes one. So the last few blocks are kept, and reused once nothing else refers to them.
"""

from __future__ import annotations

import os
import sys
import threading
from math import prod

import torch
from torch import Tensor, UntypedStorage

LARGE = 2**22
"""Smallest block in bytes that is pooled: the allocator keeps smaller ones itself."""
MOST = 2**28
"""Capacity of the pool in bytes."""

REFERENCES = 4
"""Reference count of a free block during the check: the list, the loop over it, the check, and the call in it."""
_kept: list[UntypedStorage] = []
"""The pool, most recently used last."""
_lock = threading.Lock()


def room(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Like `torch.empty`, from the pool if possible. The device must be the CPU."""
    size = prod(shape) * dtype.itemsize
    if not LARGE <= size <= MOST:
        return torch.empty(shape, dtype=dtype, device=device)
    with _lock:
        found = next((piece for piece in _kept if size <= piece.nbytes() <= 2 * size and _is_free(piece)), None)
        if found is None:
            new = torch.empty(shape, dtype=dtype, device=device)
            _keep(new.untyped_storage())
            return new
        _keep(found)
        return torch.empty(0, dtype=dtype, device=device).set_(found, 0, shape)  # type: ignore[call-overload, no-any-return]


def forget() -> None:
    """Empty the pool: blocks that nothing else refers to are freed."""
    with _lock:
        _kept.clear()


def _is_free(piece: UntypedStorage) -> bool:
    """Whether only the pool refers to the block."""
    return sys.getrefcount(piece) <= REFERENCES and bool(torch._C._storage_Use_Count(piece._cdata) == 1)


def _keep(piece: UntypedStorage) -> None:
    """Mark a block as most recently used, and drop the least recently used ones beyond the capacity."""
    _kept[:] = [other for other in _kept if other is not piece]
    _kept.append(piece)
    while sum(other.nbytes() for other in _kept) > MOST:
        del _kept[0]


def _start_anew() -> None:
    """Reset after a fork: a lock held by another thread would never be released in the child."""
    global _lock
    _lock = threading.Lock()
    _kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
