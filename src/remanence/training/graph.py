"""The device's part of an update, recorded once as a CUDA graph and played back.

A small model's update is hundreds of short kernels, and the host is slower to ask for them than the device to run them.
A graph asks once. The numbers are the same: it holds the same kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from ..tasks.base import Batch
from .batches import Drawn
from .config import Training
from .forward import draws
from .population import Population

WARM = 3
"""Updates before the recording: kernels are compiled and optimisers make their memory in the first."""


def can_capture(config: Training, population: Population) -> bool:
    """Whether an update is the same work every time: nothing random, nothing carried, one learning rate, one rank.

    torch's own layers read the lengths of sequences on the host, which a recording cannot.
    """
    constant = config.schedule.name == "constant" and config.schedule.warmup == 0
    return (
        population.device.type == "cuda"
        and population.ranks.alone
        and constant
        and not config.stateful
        and config.optimiser.average == "never"
        and not config.compile
        and not draws(population.models[0])
        and not any(isinstance(module, nn.RNNBase) for module in population.models[0].modules())
    )


class Graph:
    """An update that has been recorded, from what is drawn for it.

    Args:
        work: what to record, a function of a batch alone.
        drawn: what is drawn for an update, of the shapes that it always has.
    """

    def __init__(self, work: Callable[[Batch], None], drawn: Drawn) -> None:
        self.parts = tuple(part.clone() for part in drawn.parts)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            work(drawn.show(self.parts))

    def replay(self, drawn: Drawn) -> None:
        """Do the work on another batch."""
        for place, part in zip(self.parts, drawn.parts, strict=True):
            place.copy_(part)
        self.graph.replay()
