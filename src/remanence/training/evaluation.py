"""Scores over all sequences of a split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..tasks.base import Batch, Source, Task, side_by_side
from ..tasks.sources import FixedSet, together
from .forward import Forward
from .population import Replica
from .states import narrowed, width


@torch.no_grad()
def evaluate(
    replicas: Sequence[Replica],
    task: Task,
    sources: Sequence[Source],
    forward: Forward,
    *,
    batch: int,
    size: int | None = None,
    stateful: bool = False,
) -> list[dict[str, float]]:
    """The mean of every score for every replica. Sums stay on the device until the end.

    Args:
        replicas: the models.
        task: what they learn.
        sources: sequences for every replica.
        forward: how models are run.
        batch: sequences at a time.
        size: only the first so many sequences; None for all.
        stateful: whether the sequences are pieces of a stream, and the state goes on from one to the next.
    """
    available = sources[0].size
    if available is None:
        raise ValueError(
            f"expected task {task.name!r} to have a fixed number of sequences to evaluate on, got an endless one"
        )
    count = available if size is None else min(size, available)
    totals: dict[str, list[Tensor]] = {}
    states: list[Any] | None = None
    for replica in replicas:
        replica.model.eval()
    try:
        for numbers in batches(count, batch, forward.device, stateful):
            data = picked(sources, numbers)
            if states is not None and len(numbers) < width(states[0]):
                states = [narrowed(state, len(numbers)) for state in states]
            outputs, after, _ = forward(replicas, data, states)
            states = after if stateful else None
            for name, score in task.scores(outputs, data).items():
                pair = [score.total.double(), score.count.double()]
                totals[name] = [a + b for a, b in zip(totals[name], pair, strict=True)] if name in totals else pair
    finally:
        for replica in replicas:
            replica.model.train()
    means = torch.stack([(total / number).expand(len(replicas)) for total, number in totals.values()])
    found = [dict(zip(totals, row, strict=True)) for row in means.T.tolist()]
    return [scores | task.derived(scores) for scores in found]


def picked(sources: Sequence[Source], numbers: Tensor) -> Batch:
    """The sequences with these numbers of every source, side by side. What is computed is computed for all at once."""
    sets = [source for source in sources if isinstance(source, FixedSet)]
    if len(sets) < len(sources) or len(sets) == 1:
        return side_by_side([source.pick(numbers) for source in sources])
    return sets[0].show(together([source.parts_of(numbers) for source in sets]))


def batches(count: int, width: int, device: torch.device, stateful: bool) -> Iterator[Tensor]:
    """Numbers 0 to count - 1 in batches. The longer lanes of a stream come first, so the last batch is narrower."""
    if not stateful:
        for start in range(0, count, width):
            yield torch.arange(start, min(start + width, count), device=device)
        return
    width = min(width, count)
    steps, longer = divmod(count, width)
    lane = torch.arange(width, device=device)
    starts = lane * steps + lane.clamp(max=longer)
    for step in range(steps):
        yield starts + step
    if longer:
        yield starts[:longer] + steps
