"""Fully generated cells against hand-written ones, on a CPU.

    python docs/derived_cells.py

Time of the hand-written step over that of the generated one, training / inference: medians of alternating calls, one
thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

import remanence as rm
from remanence.cells import GatedCell, GRUCell, JANETCell, LSTMCell
from remanence.gates import gate_named

STEPS, BATCH, INPUTS, UNITS = 100, 32, 20, 128
ROUNDS = 21
ENGINES = ("c++", "cpu")


class OwnLSTM(LSTMCell):
    """The LSTM under another name."""

    name = "own_lstm"


class OwnGRU(GRUCell):
    """The GRU under another name."""

    name = "own_gru"


class OwnJANET(JANETCell):
    """The JANET under another name."""

    name = "own_janet"


PAIRS: dict[str, tuple[type[GatedCell], type[GatedCell], str]] = {
    "LSTM, sigmoid": (LSTMCell, OwnLSTM, "sigmoid"),
    "LSTM, fast": (LSTMCell, OwnLSTM, "fast"),
    "LSTM, power law": (LSTMCell, OwnLSTM, "power_law"),
    "GRU, sigmoid": (GRUCell, OwnGRU, "sigmoid"),
    "GRU, fast": (GRUCell, OwnGRU, "fast"),
    "JANET, fast": (JANETCell, OwnJANET, "fast"),
    "JANET, power law": (JANETCell, OwnJANET, "power_law"),
}
"""The hand-written cell, and a subclass that changes only the name, so that everything is generated."""


def compared(calls: list[Callable[[], object]]) -> float:
    """Time of the first over that of the second."""
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS + 2):
        for call, took in zip(calls, times, strict=True):
            began = time.perf_counter()
            call()
            took.append(time.perf_counter() - began)
    first, second = (statistics.median(took[2:]) for took in times)
    return first / second


def ratios(name: str, engine: str) -> str:
    """The ratios of a cell on an engine."""
    *cells, gate = PAIRS[name]
    layers = [rm.nn.Recurrent(cell(gate_named(gate)), INPUTS, UNITS, engine=engine) for cell in cells]
    inputs = torch.randn(STEPS, BATCH, INPUTS)

    def train(layer: torch.nn.Module) -> None:
        layer.zero_grad()
        layer(inputs)[0].sum().backward()

    def infer(layer: torch.nn.Module) -> None:
        with torch.no_grad():
            layer(inputs)

    found = [compared([lambda do=do, layer=layer: do(layer) for layer in layers]) for do in (train, infer)]
    return " / ".join(f"{ratio:.2f}" for ratio in found)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print("| | " + " | ".join(f"`{engine}`" for engine in ENGINES) + " |\n|---|---|---|")
    for name in PAIRS:
        print(f"| {name} | " + " | ".join(ratios(name, engine) for engine in ENGINES) + " |", flush=True)
