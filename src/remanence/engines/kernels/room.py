"""Memory for what a training step on a CPU keeps, used again by the next.

The system takes back what is freed in pieces this large, and gives new pages, filled with zeros, at the next step: on
x86 17 ms for 50 MB, where writing them takes one. So the last few pieces are kept, and given away once nobody else has
them.
"""

from __future__ import annotations

import os
import sys
import threading
from math import prod

import torch
from torch import Tensor, UntypedStorage

LARGE = 2**22
"""Bytes from which on memory is kept: less, the allocator keeps itself."""
MOST = 2**28
"""Bytes that are kept."""

REFERENCES = 4
"""Of a piece that is looked at: the list, the loop over it, the function that looks, and what it calls."""
_kept: list[UntypedStorage] = []
"""The one that was used last at the end."""
_lock = threading.Lock()


def room(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Like `torch.empty`."""
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
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
    """Give back what nobody uses."""
    with _lock:
        _kept.clear()


def _is_free(piece: UntypedStorage) -> bool:
    """Whether nobody but the list has it."""
    return sys.getrefcount(piece) <= REFERENCES and bool(torch._C._storage_Use_Count(piece._cdata) == 1)


def _keep(piece: UntypedStorage) -> None:
    """As the last one used; what was used longest ago goes where there would be too much."""
    _kept[:] = [other for other in _kept if other is not piece]
    _kept.append(piece)
    while sum(other.nbytes() for other in _kept) > MOST:
        del _kept[0]


def _start_anew() -> None:
    """In a process that was forked: what another thread held there stays held for ever."""
    global _lock
    _lock = threading.Lock()
    _kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
