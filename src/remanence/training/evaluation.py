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
from .states import each, narrowed, width


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
    warm: int = 0,
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
        warm: of stateful sequences: how many each lane reads before its own, see `Training.evaluate_warm`.
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
        if stateful and warm:
            states = warmed(replicas, sources, forward, next(batches(count, batch, forward.device, True)), warm)
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


def warmed(
    replicas: Sequence[Replica], sources: Sequence[Source], forward: Forward, starts: Tensor, warm: int
) -> list[Any]:
    """States of lanes that begin at these sequences of a stream, each after it has read so many before them.

    All start that with the state after the first sequences of the stream. The first lane begins with zeros.
    """
    states: list[Any] | None = None
    beginning = [torch.full_like(starts, number) for number in range(warm)]
    before = [(starts - back).clamp(min=0) for back in range(warm, 0, -1)]
    for numbers in (*beginning, *before):
        _, states, _ = forward(replicas, picked(sources, numbers), states)
    assert states is not None
    return [each(lambda part: part.index_fill(1, starts[:1], 0), state) for state in states]


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
