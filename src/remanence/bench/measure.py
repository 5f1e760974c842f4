"""Interleaved timing of calls, and peak memory of a training step."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from ..training.graph import uncollected

Call = Callable[[], object]
Timer = Callable[[], float]
"""A call that returns how long it took, in milliseconds."""

MOST = 15
"""Maximum number of rounds: more do not improve the median noticeably."""
FEWEST = 3
"""Minimum number of rounds, within twice the time limit."""
AT_LEAST = 0.5
"""Seconds always granted, so that fast calls are measured more than once."""


@dataclass
class Clock:
    """A time budget in seconds."""

    seconds: float
    start: float = field(default_factory=lambda: time.perf_counter())

    @property
    def left(self) -> float:
        """Seconds left; negative once the budget is overrun."""
        return self.seconds - (time.perf_counter() - self.start)


def milliseconds(timers: Mapping[str, Timer], seconds: float) -> dict[str, float]:
    """Median time of every call in milliseconds. The calls must be warmed up.

    The calls are interleaved, in another order in every round, so that interference from other processes and what the
    previous call leaves in caches affect all of them alike.

    Args:
        timers: The timed calls, by name.
        seconds: Time limit. Up to twice as long if `FEWEST` rounds need it; at least one round is always run.
    """
    times: dict[str, list[float]] = {name: [] for name in timers}
    order, chance = list(timers), random.Random(0)
    seconds = max(seconds, AT_LEAST)
    clock = Clock(seconds)
    for done in range(1, MOST + 1):
        chance.shuffle(order)
        for name in order:
            times[name].append(timers[name]())
        took = seconds - clock.left
        if took > 2 * seconds or (done >= FEWEST and took * (done + 1) / done > seconds):
            break
    return {name: median(values) for name, values in times.items()}


def timed(calls: Mapping[str, Call], device: torch.device) -> dict[str, Timer]:
    """Timers of calls in this process."""
    return {name: partial(one, call, device) for name, call in calls.items()}


def one(call: Call, device: torch.device) -> float:
    """Time of one call in milliseconds."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.synchronize()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end))
    before = time.perf_counter()
    call()
    return (time.perf_counter() - before) * 1e3


def replayed(call: Call) -> Call:
    """Capture a call as a CUDA graph, as the training loop does: GPU time without the launch overhead of the host."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with uncollected(), torch.cuda.graph(graph):
        call()
    return graph.replay


def training_bytes(layer: nn.Module, inputs: Tensor, train: Call) -> int:
    """Memory of a training step in bytes, beyond weights and inputs.

    On a CUDA device, the peak allocation during forward and backward. On a CPU, which keeps no allocator statistics,
    the tensors that the forward pass saves for the backward pass.
    """
    layer.zero_grad(set_to_none=True)
    inputs.grad = None
    if inputs.device.type == "cuda":
        torch.cuda.synchronize(inputs.device)
        torch.cuda.reset_peak_memory_stats(inputs.device)
        before = torch.cuda.memory_allocated(inputs.device)
        train()
        torch.cuda.synchronize(inputs.device)
        return int(torch.cuda.max_memory_allocated(inputs.device) - before)
    given = {tensor.untyped_storage().data_ptr() for tensor in (inputs, *layer.parameters())}
    kept: dict[int, int] = {}
    held: list[Tensor] = []  # keeps storage alive: freed storage could be reused and counted twice

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(inputs)
    return sum(kept.values())
