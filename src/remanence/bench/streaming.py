"""Latency of a step of a few sequences: layers against `torch.nn.LSTM`, step modules against `torch.nn.LSTMCell`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from statistics import median

import torch
from torch import nn

from ..nn import LSTM, LSTMCell
from .measure import Call
from .program import elapsed
from .timings import Say

UNITS = (64, 256)
SEQUENCES = (1, 8)
GATES = ("sigmoid", "fast", "power_law")
TIMED = "power_law with dt"
"""The gate that uses the time between steps, with random ones."""
ROUNDS = 25
"""Measurements of each module, interleaved."""
REPEATS = 100
"""Steps per measurement: as in a real stream, weights may stay in the cache from one step to the next."""


@dataclass(frozen=True)
class StreamingStep:
    """Inference latency of one step, with as many inputs as units."""

    what: str
    """"layer" or "step module"."""
    gate: str
    """Empty for torch's own modules."""
    units: int
    step_us: float
    torch_us: float
    sequences: int = 1

    @property
    def ratio(self) -> float:
        """torch's time over this: above 1, this is faster."""
        return self.torch_us / self.step_us


def streaming_steps(device: torch.device, say: Say) -> Iterator[StreamingStep]:
    """Measure every gate at every size. Each step starts from the state of the previous one."""
    for units, sequences in product(UNITS, SEQUENCES):
        say(f"one step: {units} units, sequences: {sequences}")
        layers: dict[str, nn.Module] = {"": nn.LSTM(units, units)}
        layers |= {gate: LSTM(units, units, gate=gate) for gate in GATES}
        modules: dict[str, nn.Module] = {"": nn.LSTMCell(units, units)}
        modules |= {gate: LSTMCell(units, units, gate=gate) for gate in GATES}
        inputs, dt = torch.randn(sequences, units, device=device), torch.rand(sequences, device=device)
        calls = {("layer", gate): stream(layer.to(device), inputs[None]) for gate, layer in layers.items()}
        calls["layer", TIMED] = stream(LSTM(units, units, gate="power_law", device=device), inputs[None], dt[None])
        calls |= {("step module", gate): stream(module.to(device), inputs) for gate, module in modules.items()}
        calls["step module", TIMED] = stream(LSTMCell(units, units, gate="power_law", device=device), inputs, dt)
        times: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
        for _ in range(ROUNDS + 1):
            for key, call in calls.items():
                times[key].append(elapsed(call, REPEATS, device) * 1e3)
        found = {key: median(values[1:]) for key, values in times.items()}
        for (what, gate), step_us in found.items():
            yield StreamingStep(what, gate, units, step_us, found[what, ""], sequences)


def stream(module: nn.Module, inputs: torch.Tensor, dt: torch.Tensor | None = None) -> Call:
    """A call that advances a module by one step."""
    module.eval()
    state, times = None, () if dt is None else (dt,)

    def step() -> None:
        nonlocal state
        with torch.no_grad():
            found = module(inputs, state, *times)
        state = found if isinstance(module, nn.LSTMCell | LSTMCell) else found[1]

    return step
