"""Memory and time of a training step with and without `recompute`, each in its own process.

    python docs/recomputed.py [cpu|cuda]

The tables are in docs/developers/kernels.md.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SIZES = {"cpu": (2000, 64, 8, 128), "cuda": (5000, 100, 1, 256)}
"""By device: steps, sequences, inputs and units."""
KINDS = {"torch's LSTM": None, "fast": 0, "fast, recompute=4": 4, "fast, recompute=8": 8, "fast, recompute=16": 16}


def measured(device: str, kind: str) -> str:
    """Growth of the peak memory in one step in MiB, and milliseconds of a later step."""
    import torch

    import remanence as rm

    (steps, rows, inputs, units), pieces = SIZES[device], KINDS[kind]
    layer: torch.nn.Module = (
        torch.nn.LSTM(inputs, units, device=device)
        if pieces is None
        else rm.LSTM(inputs, units, gate="fast", recompute=pieces, device=device)
    )
    sequences = torch.randn(steps, rows, inputs, device=device)
    _step(layer, sequences[:32])
    before = _most(device)
    first = _step(layer, sequences)
    grown = _most(device) - before
    took = median(_step(layer, sequences) for _ in range(1 if first > 1 else 9))
    return f"| {kind} | {grown:.0f} | {1e3 * took:.1f} |"


def _step(layer: torch.nn.Module, sequences: torch.Tensor) -> float:
    """Seconds of a training step."""
    import torch

    start = time.perf_counter()
    layer(sequences)[0].sum().backward()
    if sequences.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _most(device: str) -> float:
    """Peak memory so far in MiB; on a CPU that of the process (in KiB on Linux)."""
    import torch

    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    device, *kinds = sys.argv[1:] or ["cpu"]
    if kinds:
        print(measured(device, *kinds))
    else:
        print("| layer | MiB | ms |\n| --- | ---: | ---: |", flush=True)
        for kind in KINDS:
            subprocess.run([sys.executable, __file__, device, kind], check=True)
