"""One training step of a few layers, for a profiler.

    ncu --csv --metrics METRICS -k 'regex:^(forward|backward)$' python docs/profiled.py

METRICS are those named in results/bench/h200-ncu.json, which docs/performance.md shows.
"""

from __future__ import annotations

import torch

import remanence as rm

LAYERS = (
    ("fast", 128, 128, 220),
    ("plstm", 128, 128, 220),
    ("fast", 256, 100, 784),
    ("fast", 512, 100, 784),
    ("fast", 400, 20, 70),
)
"""Model, units H, sequences B and steps T."""


def main() -> None:
    """Forward and backward, each once."""
    torch.backends.cudnn.rnn.fp32_precision = torch.backends.cuda.matmul.fp32_precision = "tf32"
    for model, units, batch, steps in LAYERS:
        layer = rm.make(model, 4, units, device="cuda", engine="cuda")
        output, _ = layer(torch.randn(steps, batch, 4, device="cuda"))
        output.sum().backward()
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
