"""Generalisation to delays that were not trained on (pLSTM figure A.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from torch import Tensor

from ..models import SequenceModel
from ..tasks.base import Batch, Task
from .plain import Result
from .sequences import AT_ONCE, home_of, measuring, outputs_of, repeated, scored, sequences_of

DELAYS = (50, 100, 150, 200, 300, 400, 500, 750, 1000, 1500, 2000)


@dataclass(frozen=True, eq=False)
class Generalisation(Result):
    """Scores at every delay."""

    delays: NDArray[numpy.int64]
    """The delays."""
    goal: str
    """Name of the task's main score."""
    scores: dict[str, NDArray[numpy.float64]]
    """`(models, delays)` by name of score."""
    mean: NDArray[numpy.float64]
    """Mean of the goal over models, `(delays,)`."""
    std: NDArray[numpy.float64]
    """Sample standard deviation of the goal over models; zero for one model."""


def generalisation(
    models: SequenceModel | Sequence[SequenceModel],
    task_at: Callable[[int], Task],
    delays: Sequence[int] = DELAYS,
    *,
    sequences: int = 1000,
    seed: int = 0,
    at_once: int = AT_ONCE,
) -> Generalisation:
    """Score trained models at delays they were not trained on.

    Args:
        models: a model, or several that differ only in their weights, such as the seeds of an experiment. All run in
            parallel on the same sequences.
        task_at: function that makes the task with a given delay.
        delays: delays to test.
        sequences: sequences per delay.
        seed: seed of the sequences.
        at_once: sequences run at a time.
    """
    models = [models] if isinstance(models, SequenceModel) else list(models)
    if not models or not delays:
        raise ValueError(f"expected at least one model and one delay, got {len(models)} and {len(delays)}")
    device, _ = home_of(models[0])
    found: dict[str, list[list[float]]] = {}
    with measuring(*models):

        def run(batch: Batch) -> Tensor:
            return outputs_of(models, repeated(batch, len(models)))

        for delay in delays:
            task = task_at(delay)
            batches = sequences_of(task, sequences, seed=seed, device=device, at_once=at_once)
            for name, values in scored(task, batches, len(models), run).items():
                found.setdefault(name, []).append(values)
    scores = {name: numpy.array(values).T for name, values in found.items()}
    goal = scores[task.goal]
    return Generalisation(
        delays=numpy.array(delays),
        goal=task.goal,
        scores=scores,
        mean=goal.mean(0),
        std=goal.std(0, ddof=1) if len(models) > 1 else numpy.zeros(len(delays)),
    )
