"""Latency of the first layer in a new process, which includes loading or compiling its kernels."""

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
"""Gates measured besides torch's own layer, which is the empty string."""
ROUNDS = 3
"""Processes of each kind. The fastest one counts: interference from other processes only makes it slower."""
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
"""Forward and backward, after torch has initialised the device."""


@dataclass(frozen=True)
class FirstUse:
    """Time of the first training step in a process."""

    layer: str
    """A gate, or an empty string for torch's own layer."""
    disk: str
    """"kernels on disk" (cached by an earlier process) or "nothing on disk"."""
    seconds: float
    torch_seconds: float

    @property
    def more(self) -> float:
        """Seconds beyond torch's own."""
        return self.seconds - self.torch_seconds


def first_uses(device: torch.device, say: Say) -> Iterator[FirstUse]:
    """Measure torch's own layer, and ours with a cold and a warm kernel cache."""
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
    """Seconds of the first step in a new process that caches kernels in the folder `cache`."""
    kept = {"REMANENCE_CACHE": cache, "TRITON_CACHE_DIR": f"{cache}/triton", "REMANENCE_QUIET": "1"}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, layer, str(device)],
        env={**os.environ, **kept},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise RuntimeError(f"the process of a first layer failed: {found.stderr.strip().splitlines()[-1]}")
    return float(found.stdout)
