"""A single step of a few sequences on a CPU, see `kernels.one_step`."""

from __future__ import annotations

import ctypes
from struct import Struct

import torch

from ..kernels.contract import Derivation, Kind
from ..kernels.machine_code import cell_sources, joined
from ..kernels.one_step import Maker, Start, StepSizes, constants_of, count_addresses
from .compiler import library, step_sources
from .engine import lacks

SHARE = 2**20
"""Multiplications per thread. With fewer, one thread is done before another has woken up."""


def make(kind: Kind, known: Derivation, has_dt: bool, device: torch.device) -> Start:
    """Compile the step of a kind."""
    text = joined(step_sources(cell_sources(kind.derived(has_dt)), "one_step.cpp"))
    function = library(text, constants_of(kind, known, has_dt), ("one_step",)).one_step
    function.argtypes, function.restype = (ctypes.c_char_p,), None
    pack, blocks, beta = Struct(f"@5qd{count_addresses(kind, known)}P").pack, kind.blocks, kind.beta

    def start(shape: StepSizes, addresses: list[int]) -> None:
        rows, inputs, units, width = shape
        many = max(1, min(rows * blocks * units * (inputs + width) // SHARE, torch.get_num_threads()))
        function(pack(rows, inputs, units, width, many, beta, *addresses))

    return start


maker = Maker(lambda device: lacks(), make)
