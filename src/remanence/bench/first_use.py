"""The first layer of a process: how long a user waits who has just started one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .timings import Say

LAYERS = ("power_law", "refine")
"""Beside torch's own, which is the empty word."""
ROUNDS = 3
"""Processes of each kind, of which the fastest counts: what else the machine does only ever makes it slower."""
PROGRAM = """
import sys, time
import torch
import remanence as rm
gate, device = sys.argv[1:]
torch.randn(4, 4, device=device).mm(torch.randn(4, 4, device=device)).sum().item()
layer = (rm.LSTM(16, 64, gate=gate) if gate else torch.nn.LSTM(16, 64)).to(device)
inputs = torch.randn(50, 32, 16, device=device)
began = time.perf_counter()
layer(inputs)[0].sum().backward()
layer.weight_hh_l0.grad.sum().item()
print(time.perf_counter() - began)
"""
"""Forward and backward, after torch has taken up the device."""


@dataclass(frozen=True)
class FirstUse:
    """A first training step."""

    layer: str
    """A gate, or nothing for torch's own layer."""
    disk: str
    """"kernels on disk" of an earlier process, or "nothing on disk"."""
    seconds: float
    torch_seconds: float

    @property
    def more(self) -> float:
        """Seconds beyond torch's own."""
        return self.seconds - self.torch_seconds


def first_uses(device: torch.device, say: Say) -> Iterator[FirstUse]:
    """Measure torch's own layer, and ours on a machine that has never seen them and on one that has."""
    with tempfile.TemporaryDirectory() as folder:
        say("the first layer of a process: torch.nn.LSTM")
        own = min(once("", device, folder) for _ in range(ROUNDS))
    yield FirstUse("", "", own, own)
    for layer in LAYERS:
        say(f"the first layer of a process: {layer}")
        new, kept = [], []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                new.append(once(layer, device, folder))
                kept.append(once(layer, device, folder))
        yield FirstUse(layer, "nothing on disk", min(new), own)
        yield FirstUse(layer, "kernels on disk", min(kept), own)


def once(layer: str, device: torch.device, cache: str) -> float:
    """Seconds in a process of its own, which keeps kernels in that folder."""
    kept = {"REMANENCE_CACHE": cache, "TRITON_CACHE_DIR": f"{cache}/triton", "REMANENCE_QUIET": "1"}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, layer, str(device)],
        env={**os.environ, **kept},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise RuntimeError(f"a first layer ended with {found.stderr.strip().splitlines()[-1]}")
    return float(found.stdout)
