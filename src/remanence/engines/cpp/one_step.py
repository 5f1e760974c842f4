"""A single step of a few sequences on a CPU, see `kernels.one_step`."""

from __future__ import annotations

import ctypes
import threading
from struct import Struct
from time import perf_counter

import torch

from ..kernels.contract import Derivation, Kind
from ..kernels.machine_code import cell_sources, joined
from ..kernels.one_step import Maker, Start, StepSizes, constants_of, count_addresses
from .compiler import library, step_sources
from .engine import lacks

SHARE = 3 * 2**16
"""Multiplications per thread: fewer take less time than starting and waiting for other threads, even if awake."""
LARGE = 2**22
"""Multiplications that take so long that it pays to wake other threads, which can take half a millisecond."""
CLOSE = 2e-4
"""Seconds between two steps for which threads stay awake: OpenMP's spin for a while before they sleep."""
IN_A_ROW = 8
"""Steps that must have followed each other closely before other threads take part: a stream in real time has gaps, and
would pay for waking them at every step."""


class _Pace(threading.local):
    """How many steps have followed each other closely, over all modules that a thread of Python runs."""

    close = 0
    last = 0.0

    def threads(self, work: int) -> int:
        """Number of threads for a step with so many multiplications."""
        if work < 2 * SHARE:
            return 1
        self.close = self.close + 1 if perf_counter() - self.last < CLOSE else 0
        if work < LARGE and self.close < IN_A_ROW:
            return 1
        return min(work // SHARE, torch.get_num_threads())


_pace = _Pace()


def make(kind: Kind, known: Derivation, has_dt: bool, device: torch.device) -> Start:
    """Compile the step of a kind."""
    text = joined(step_sources(cell_sources(kind.derived(has_dt)), "one_step.cpp"))
    function = library(text, constants_of(kind, known, has_dt), ("one_step",)).one_step
    function.argtypes, function.restype = (ctypes.c_char_p,), None
    pack, blocks, beta = Struct(f"@5qd{count_addresses(kind, known)}P").pack, kind.blocks, kind.beta

    def start(shape: StepSizes, addresses: list[int]) -> None:
        rows, inputs, units, width = shape
        many = _pace.threads(rows * blocks * units * (inputs + width))
        function(pack(rows, inputs, units, width, many, beta, *addresses))
        _pace.last = perf_counter()

    return start


maker = Maker(lambda device: lacks(), make)
