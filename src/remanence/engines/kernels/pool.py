"""A memory pool for the tensors that a training step on a CPU saves, reused by the next step.

The operating system reclaims freed blocks of this size, and maps new zeroed pages in the next step: on x86 17 ms for
50 MB, where writing them takes one. So the last few blocks are kept, and reused once nothing else refers to them. If a
step needs more than the pool holds, the first blocks of the step stay in it: dropping the least recently used one, as
caches do, would drop every block just before its turn.
"""

from __future__ import annotations

import os
import sys
import threading
from math import prod

import torch
from torch import Tensor, UntypedStorage

from ..machine import memory

LARGE = 2**22
"""Smallest block in bytes that is pooled: the allocator keeps smaller ones itself."""
MOST = max(2**28, memory() // 16)
"""Capacity of the pool in bytes: a sixteenth of the machine's memory, and 256 MiB where that is less."""

REFERENCES = 4
"""Reference count of a free block during the check: the pool, the loop over it, the check, and the call in it."""
_kept: list[UntypedStorage] = []
"""The pool, most recently used last."""
_lock = threading.Lock()


def pooled(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Like `torch.empty`, from the pool if possible. The device must be the CPU."""
    size = prod(shape) * dtype.itemsize
    if not LARGE <= size <= MOST:
        return torch.empty(shape, dtype=dtype, device=device)
    with _lock:
        found = next((piece for piece in _kept if size <= piece.nbytes() <= 2 * size and _is_free(piece)), None)
        if found is None:
            new = torch.empty(shape, dtype=dtype, device=device)
            if _makes_space_for(size):
                _kept.append(new.untyped_storage())
            return new
        _kept[:] = [*(piece for piece in _kept if piece is not found), found]
        return torch.empty(0, dtype=dtype, device=device).set_(found, 0, shape)  # type: ignore[call-overload, no-any-return]


def forget() -> None:
    """Empty the pool: blocks that nothing else refers to are freed."""
    with _lock:
        _kept.clear()


def _is_free(piece: UntypedStorage) -> bool:
    """Whether only the pool refers to the block."""
    return sys.getrefcount(piece) <= REFERENCES and bool(torch._C._storage_Use_Count(piece._cdata) == 1)


def _makes_space_for(size: int) -> bool:
    """Drop free blocks, the least recently used first, until one of `size` bytes fits. Those in use stay."""
    size += sum(piece.nbytes() for piece in _kept)
    place = 0
    while size > MOST and place < len(_kept):
        piece = _kept[place]
        if _is_free(piece):
            size -= piece.nbytes()
            del _kept[place]
        else:
            place += 1
    return size <= MOST


def _start_anew() -> None:
    """Reset after a fork: a lock held by another thread would never be released in the child."""
    global _lock
    _lock = threading.Lock()
    _kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
