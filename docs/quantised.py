"""Inference in float32 against torch's LSTM with int8 weights (dynamic quantisation), on one thread of a CPU.

    python docs/quantised.py

Milliseconds of CPU time, the minimum of several calls, so that other processes do not count. The table is in
docs/how-to/deploy.md.
"""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable

import torch
from torch import nn

import remanence as rm

SIZES = ((1, 1, 512), (1, 1, 1150), (100, 1, 128), (100, 1, 512), (50, 16, 256), (20, 64, 512))
"""Steps, sequences, units."""
PATIENCE = 5.0
"""Seconds after which a layer is not called again."""


def measured(steps: int, rows: int, units: int) -> str:
    """A row of the table."""
    x = torch.randn(steps, rows, units)
    theirs = nn.LSTM(units, units).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to move it elsewhere
        quantised = torch.ao.quantization.quantize_dynamic(nn.Sequential(theirs), {nn.LSTM}, dtype=torch.qint8)
    ours: list[nn.Module] = [rm.LSTM.from_torch(theirs).eval(), rm.PowerLawLSTM(units, units).eval()]
    with torch.no_grad():
        times = [milliseconds(lambda layer=layer: layer(x)) for layer in (theirs, quantised, *ours)]  # type: ignore[misc]
    return (
        f"| {steps} x {rows} x {units} | "
        + " | ".join(f"{took:.2f}" if took < 10 else f"{took:.0f}" for took in times)
        + " |"
    )


def milliseconds(call: Callable[[], object]) -> float:
    """CPU time, the minimum of several calls."""
    call()
    found, end = [], time.monotonic() + PATIENCE
    while len(found) < 30 and (not found or time.monotonic() < end):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return 1e3 * min(found)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if platform.machine().lower() in ("aarch64", "arm64"):
        torch.backends.quantized.engine = "qnnpack"
    print("| steps x sequences x units | `torch.nn.LSTM` | the same in int8 | `rm.LSTM` | `rm.PowerLawLSTM` |")
    print("|---|---|---|---|---|")
    for sizes in SIZES:
        print(measured(*sizes), flush=True)
