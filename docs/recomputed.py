"""What a training step needs with and without `recompute`, each in a process of its own.

    python docs/recomputed.py

The table is in docs/performance.md.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

STEPS, ROWS, INPUTS, UNITS = 2000, 64, 8, 128
KINDS = {"torch's LSTM": None, "fast": 0, "fast, recompute=4": 4, "fast, recompute=8": 8, "fast, recompute=16": 16}


def measured(kind: str) -> str:
    """MiB by which the most that the process ever had grows in one step, and seconds of the next."""
    import torch

    import remanence as rm

    pieces = KINDS[kind]
    layer: torch.nn.Module
    layer = torch.nn.LSTM(INPUTS, UNITS) if pieces is None else rm.LSTM(INPUTS, UNITS, gate="fast", recompute=pieces)
    inputs = torch.randn(STEPS, ROWS, INPUTS)

    def step(steps: int) -> float:
        start = time.perf_counter()
        layer(inputs[:steps])[0].sum().backward()
        return time.perf_counter() - start

    step(10)
    before = _most()
    step(STEPS)
    return f"| {kind} | {_most() - before:.0f} | {step(STEPS):.1f} |"


def _most() -> float:
    """MiB on Linux, where it is counted in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(measured(sys.argv[1]))
    else:
        print("| layer | MiB | s |\n| --- | ---: | ---: |", flush=True)
        for kind in KINDS:
            subprocess.run([sys.executable, __file__, kind], check=True)
