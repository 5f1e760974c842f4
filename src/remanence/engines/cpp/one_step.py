"""A single step of a few sequences on a CPU, see `kernels.one_step`."""

from __future__ import annotations

import ctypes
import threading
from struct import Struct
from time import perf_counter

import torch

from ..kernels.bound import Start, StepSizes
from ..kernels.contract import Derivation, Kind
from ..kernels.machine_code import cell_sources, joined
from ..kernels.one_step import Maker, constants_of, count_addresses
from .compiler import library, step_sources
from .engine import lacks

TOGETHER = 4
"""Sequences that share a read of the weights, and take little longer than one (`MOST` in one_step.cpp)."""
SHARE = 3 * 2**16
"""Multiplications per thread: fewer take less time than starting and waiting for other threads, even if awake. A few
sequences that share a read of the weights count as one."""
LARGE = 2**22
"""Multiplications that take so long that it pays to wake other threads, which can take half a millisecond."""
CLOSE = 2e-4
"""Seconds between two steps for which threads stay awake: OpenMP's spin for a while before they sleep."""
IN_A_ROW = 8
"""Steps that must have followed each other closely before other threads take part: a stream in real time has gaps, and
would pay for waking them at every step."""
PATIENCE = 4
"""Slow steps in a row that are put up with: the first has to wake the other threads."""
REST = 1000
"""Steps with one thread after that."""


class _Pace(threading.local):
    """How many threads the next step of a few hundred units gets, over all modules that a thread of Python runs.

    Several, once steps have followed each other closely; one again for a while if that turns out to be slower, because
    other programs use the cores.
    """

    close = 0
    """Steps that have followed each other closely."""
    last = 0.0
    """When the last one ended."""
    alone = float("inf")
    """Seconds per multiplication of the fastest of them with one thread."""
    slower = 0
    """Steps in a row that were slower than that with several threads."""
    rest = 0
    """Steps to take with one thread."""

    def threads(self, work: int, began: float) -> int:
        """Number of threads for a step with so many multiplications that begins now."""
        if began - self.last < CLOSE:
            self.close += 1
        else:
            self.close, self.alone = 0, float("inf")
        self.rest = max(0, self.rest - 1)
        if work < LARGE and (self.close < IN_A_ROW or self.rest):
            return 1
        return min(work // SHARE, torch.get_num_threads())

    def took(self, work: int, threads: int, began: float, ended: float) -> None:
        """Learn from a step."""
        each, self.last = (ended - began) / work, ended
        if threads == 1:
            self.alone = min(self.alone, each)
            return
        self.slower = self.slower + 1 if each > self.alone else 0
        if self.slower > PATIENCE:
            self.slower, self.rest = 0, REST


_pace = _Pace()


def make(kind: Kind, known: Derivation, has_dt: bool, device: torch.device) -> Start:
    """Compile the step of a kind."""
    text = joined(step_sources(cell_sources(kind.derived(has_dt)), "one_step.cpp"))
    function = library(text, constants_of(kind, known, has_dt), ("one_step",)).one_step
    function.argtypes, function.restype = (ctypes.c_char_p,), None
    pack, blocks, beta = Struct(f"@5qd{count_addresses(kind, known)}P").pack, kind.blocks, kind.beta

    def start(shape: StepSizes, addresses: list[int]) -> None:
        rows, inputs, units, width = shape
        work = -(-rows // TOGETHER) * blocks * units * (inputs + width)
        if work < 2 * SHARE:
            function(pack(rows, inputs, units, width, 1, beta, *addresses))
            return
        began = perf_counter()
        many = _pace.threads(work, began)
        function(pack(rows, inputs, units, width, many, beta, *addresses))
        _pace.took(work, many, began, perf_counter())

    return start


maker = Maker(lambda device: lacks(), make)
