"""How to run an experiment, and which of its runs train at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import torch

from ..training import Budget, Ranks, Run
from ..training.progress import Silent

TURNS = 3
"""Models that take turns on a GPU, if there is no other request."""
NARROW = 2**16
"""Most values in a step of a recurrence for that, sequences times units: one with more fills the GPU alone."""


@dataclass
class Way:
    """How to run an experiment: output folder, device, time budget, progress display and loggers."""

    out: Path
    """Folder for all experiments."""
    device: torch.device
    """Device to train on."""
    budget: Budget = field(default_factory=Budget)
    """Time limit."""
    together: int | None = None
    """Number of runs trained at once. None for one on a CPU; on a GPU for all seeds of a model, and for `TURNS` such
    models if each leaves much of the GPU idle."""
    progress: Silent = field(default_factory=Silent)
    """Progress display."""
    loggers: Sequence[Any] = ()
    """Further destinations of metrics."""
    ranks: Ranks = field(default_factory=Ranks)
    """The processes that train together. Rank 0 writes files and shows tables."""
    engine: str | None = None
    """Engine of the models; None for the engine that a run started with, or the fastest."""
    unless_in: Sequence[Path] = ()
    """Further folders with results. Runs that have finished there are left out."""

    def batches(self, models: Iterable[Sequence[Run]]) -> Iterator[tuple[Sequence[Run], int]]:
        """Split the runs of some models into groups that train at once, each with the most stacks that take turns.

        Seeds of a model are stacked. Runs with chunks of random lengths cannot be; those of one seed are neighbours, so
        that models that are to be compared have been trained equally long whenever it stops.
        """
        on_gpu = self.device.type == "cuda"
        models = [runs for runs in models if runs]
        stacked = [runs for runs in models if not runs[0].config.jitter]
        by_seed = zip_longest(*(runs for runs in models if runs[0].config.jitter))
        texts = [run for runs in by_seed for run in runs if run is not None]
        if self.together:
            yield from ((part, 1) for runs in stacked for part in evenly(runs, self.together))
            if texts:
                yield texts, self.together
            return
        stacks = [part for runs in stacked for part in evenly(runs, len(runs) if on_gpu else 1)]
        stacks += [[run] for run in texts]
        turning = [on_gpu and self.ranks.alone and is_narrow(runs) for runs in stacks]
        if any(turning):
            yield [run for runs, turns in zip(stacks, turning, strict=True) if turns for run in runs], TURNS
        yield from ((runs, 1) for runs, turns in zip(stacks, turning, strict=True) if not turns)


def is_narrow(runs: Sequence[Run]) -> bool:
    """Whether the recurrence of these runs, stacked, leaves much of a GPU idle."""
    units: int = runs[0].description["layer"]["hidden_size"]
    return len(runs) * runs[0].config.batch * units <= NARROW


def evenly(runs: Sequence[Run], most: int) -> Iterator[Sequence[Run]]:
    """Split runs into as few groups of at most `most` as possible, whose sizes differ by at most one."""
    count = -(-len(runs) // max(1, most))
    ends = [-(-len(runs) * number // count) for number in range(count + 1)] if count else []
    for start, end in pairwise(ends):
        yield runs[start:end]
