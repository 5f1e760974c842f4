"""The device's part of an update, recorded once as a CUDA graph and played back.

A small model's update is hundreds of short kernels, and the host is slower to ask for them than the device to run them.
A graph asks once. The numbers are the same: it holds the same kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import torch
from torch import Tensor

from ..tasks.base import Batch
from .config import Training
from .population import Population
from .randomness import draws

WARM = 3
"""Updates before the recording: kernels are compiled and optimisers make their memory in the first."""


def can_record(config: Training, population: Population) -> bool:
    """Whether an update is the same work every time: nothing random, nothing carried, one learning rate."""
    constant = config.schedule.name == "constant" and config.schedule.warmup == 0
    return (
        population.device.type == "cuda"
        and constant
        and not config.stateful
        and config.optimiser.average == "never"
        and not config.compile
        and not draws(population.models[0])
    )


class Graph:
    """An update that has been recorded.

    Args:
        work: what to record, a function of a batch alone.
        batch: a batch of the shapes that all batches have.
    """

    def __init__(self, work: Callable[[Batch], None], batch: Batch) -> None:
        own = {name: value.clone() for name, value in vars(batch).items() if value is not None}
        self.batch = replace(batch, **own)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            work(self.batch)

    def play(self, batch: Batch) -> None:
        """Do the work on another batch."""
        for field in fields(Batch):
            place: Tensor | None = getattr(self.batch, field.name)
            if place is not None:
                place.copy_(getattr(batch, field.name))
        self.graph.replay()
