"""Time of calls taken in turn, and memory of a training step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor, nn

Call = Callable[[], object]

MOST = 15
"""Rounds after which a median is good enough."""
AT_LEAST = 0.5
"""Seconds that may always be taken: what is quick is never measured only once."""


@dataclass
class Clock:
    """Seconds of a budget."""

    seconds: float
    start: float = field(default_factory=lambda: time.perf_counter())

    @property
    def left(self) -> float:
        """Seconds that are left; negative when it is late."""
        return self.seconds - (time.perf_counter() - self.start)


def milliseconds(calls: Mapping[str, Call], device: torch.device, seconds: float, least: int = 3) -> dict[str, float]:
    """Median time of every call, in milliseconds. The calls must be warm.

    They are taken in turn, so that whatever else the machine does falls on all of them alike.

    Args:
        calls: what to time, by name.
        device: where it runs.
        seconds: what it may take; up to twice that where `least` rounds take longer, and one round in any case.
        least: rounds that should be made.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    seconds = max(seconds, AT_LEAST)
    clock = Clock(seconds)
    for done in range(1, MOST + 1):
        for name, call in calls.items():
            times[name].append(one(call, device))
        took = seconds - clock.left
        if took > 2 * seconds or (done >= least and took * (done + 1) / done > seconds):
            break
    return {name: median(values) for name, values in times.items()}


def one(call: Call, device: torch.device) -> float:
    """Milliseconds of one call."""
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
    """The same as a CUDA graph, as the training loop runs it: the device's work, without the host that asks for it."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def training_bytes(layer: nn.Module, inputs: Tensor, train: Call) -> int:
    """Memory a training step needs beyond weights and inputs.

    On CUDA devices the peak of what is allocated in forward and backward; on a CPU, where nobody keeps count, what the
    forward pass keeps for the backward pass.
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
    held: list[Tensor] = []  # storage that is freed could be used, and counted, again

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(inputs)
    return sum(kept.values())
