"""One training step of a few layers for a profiler, and its output as a file.

    ncu --csv --print-units base --metrics "$(python docs/profiled.py metrics)" \
        -k 'regex:^(whole_|wide_)?(forward|backward)$' python docs/profiled.py > profile.csv
    python docs/profiled.py kept profile.csv results/bench/h200-ncu.json

docs/developers/kernels.md shows the file.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

METRICS = {
    "microseconds": "gpu__time_duration.sum",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "tensor_percent": "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "transcendental_percent": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "shared_memory_percent": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_bytes": "dram__bytes.sum",
    "instructions": "smsp__inst_executed.sum",
    "registers": "launch__registers_per_thread",
    "warps_per_processor": "sm__warps_active.avg.per_cycle_active",
}
"""The stored metrics and their names in ncu; times are in nanoseconds."""
STALLS = ("wait", "short_scoreboard", "long_scoreboard", "barrier", "mio_throttle", "math_pipe_throttle")
"""Stall reasons."""
NAMES = "'regex:^(whole_|wide_)?(forward|backward)$'"
KEPT = f"ncu --csv --print-units base --metrics METRICS -k {NAMES} python docs/profiled.py"


class Layer(NamedTuple):
    """A layer, or several of its kind in one launch."""

    model: str
    units: int
    batch: int
    steps: int
    count: int = 1


LAYERS = (
    Layer("fast", 128, 128, 220),
    Layer("plstm", 128, 128, 220),
    Layer("fast", 128, 128, 220, count=8),
    Layer("plstm", 128, 128, 220, count=8),
    Layer("fast", 256, 100, 784),
    Layer("fast", 512, 100, 784),
    Layer("fast", 400, 20, 70),
    Layer("fast", 716, 128, 150),
    Layer("fast", 1150, 20, 70),
)
GATES = {"fast": "fast", "plstm": "power_law"}


def stall(reason: str) -> str:
    """ncu's name of the number of warps that stall for a reason, per issue."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


def step() -> None:
    """Forward and backward of every layer, each once."""
    import torch

    import remanence as rm

    torch.backends.cudnn.rnn.fp32_precision = torch.backends.cuda.matmul.fp32_precision = "tf32"
    for layer in LAYERS:
        made = [rm.make(layer.model, 4, layer.units, device="cuda", engine="cuda") for _ in range(layer.count)]
        results = rm.together(made, torch.randn(layer.steps, layer.batch, 4, device="cuda"))
        sum(output.sum() for output, _ in results).backward()
        torch.cuda.synchronize()


def kernels(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The metrics of every kernel, in the order of `LAYERS`, forward and backward."""
    found: dict[str, dict[str, float]] = {}
    names: dict[str, str] = {}
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        names[row["ID"]] = row["Kernel Name"].split("(")[0]
        found.setdefault(row["ID"], {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    expected = [(layer, kernel) for layer in LAYERS for kernel in ("forward", "backward")]
    if [name.rpartition("_")[-1] for name in names.values()] != [kernel for _, kernel in expected]:
        raise ValueError(f"expected kernels forward and backward of {len(LAYERS)} layers, got {list(names.values())}")
    return [
        {
            "kernel": kernel,
            "gate": GATES[layer.model],
            "sizes": {"steps": layer.steps, "batch": layer.batch, "units": layer.units, "count": layer.count},
            **{name: seen[metric] / (1000 if name == "microseconds" else 1) for name, metric in METRICS.items()},
            "stalls": {reason: seen[stall(reason)] for reason in STALLS},
        }
        for (layer, kernel), seen in zip(expected, found.values(), strict=True)
    ]


def keep(profile: Path, file: Path) -> None:
    """Write a profile, with the machine, to a file."""
    import torch

    from remanence import files
    from remanence.bench.machine import describe

    kept = ("device", "torch", "cuda", "date")
    machine = {key: value for key, value in describe(torch.device("cuda")).items() if key in kept}
    report = {"machine": machine, "command": KEPT, "kernels": kernels(profile.read_text("utf-8").splitlines())}
    files.write(file, (json.dumps(report, indent=1) + "\n").encode())


def main(arguments: list[str]) -> None:
    """The commands of the module docstring."""
    match arguments:
        case []:
            step()
        case ["metrics"]:
            print(",".join([*METRICS.values(), *map(stall, STALLS)]))
        case ["kept", profile, file]:
            keep(Path(profile), Path(file))
        case _:
            sys.exit("expected nothing, `metrics`, or `kept PROFILE FILE`")


if __name__ == "__main__":
    main(sys.argv[1:])
