"""An update captured once as a CUDA graph and replayed.

An update of a small model is hundreds of short kernels, and launching them takes the host longer than running them
takes the device. A graph is launched at once. Its results are the same because it contains the same kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from ..tasks.base import Batch
from .batches import Drawn
from .config import Training
from .forward import is_stochastic
from .population import Population

WARM = 3
"""Warm-up updates before the capture: the first ones compile kernels and allocate optimiser state."""


def can_capture(config: Training, population: Population) -> bool:
    """Whether every update is the same work: no randomness, no carried state, a constant learning rate, one rank.

    The recurrent layers of torch.nn read sequence lengths on the host, which cannot be captured.
    """
    constant = config.schedule.name == "constant" and config.schedule.warmup == 0
    return (
        population.device.type == "cuda"
        and population.ranks.alone
        and constant
        and not config.stateful
        and config.optimiser.average == "never"
        and not config.compile
        and not is_stochastic(population.models[0])
        and not any(isinstance(module, nn.RNNBase) for module in population.models[0].modules())
    )


class Graph:
    """A captured update.

    Args:
        work: Function to capture; its only input is a batch.
        drawn: A batch; all batches must have the same shapes.
    """

    def __init__(self, work: Callable[[Batch], None], drawn: Drawn) -> None:
        self.parts = tuple(part.clone() for part in drawn.parts)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            work(drawn.show(self.parts))

    def replay(self, drawn: Drawn) -> None:
        """Run the captured work on another batch."""
        for place, part in zip(self.parts, drawn.parts, strict=True):
            place.copy_(part)
        self.graph.replay()
