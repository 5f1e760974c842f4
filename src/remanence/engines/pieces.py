"""Sequences in pieces: only the states between them are kept, and the backward pass computes what is inside again.

It costs a second forward pass, and needs the memory of one piece instead of that of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from .base import EngineResult, EngineTask
from .untraced import untraced

Run = Callable[[Sequence[EngineTask]], list[EngineResult]]


@untraced
def run_in_pieces(run: Run, tasks: Sequence[EngineTask], pieces: int) -> list[EngineResult]:
    """Run tasks of one kind and shape in pieces of about the same number of steps.

    Args:
        run: runs tasks.
        tasks: what to run.
        pieces: how many there are at most.
    """
    from torch.utils.checkpoint import checkpoint

    parts = list(zip(*(_cut(task, pieces) for task in tasks), strict=True))
    if tasks[0].reverse:
        parts.reverse()
    done: list[list[EngineResult]] = []
    for part in parts:
        before: Sequence[EngineTask | EngineResult] = done[-1] if done else tasks
        here = [replace(task, state=one.state) for task, one in zip(part, before, strict=True)]
        done.append(checkpoint(run, here, use_reentrant=False, preserve_rng_state=False))
    last = done[-1]
    if tasks[0].reverse:
        done.reverse()
    outputs = [torch.cat([result.output for result in results], -3) for results in zip(*done, strict=True)]
    return [EngineResult(output, result.state) for output, result in zip(outputs, last, strict=True)]


def _cut(task: EngineTask, pieces: int) -> Iterator[EngineTask]:
    """The pieces of a task, each as if it were all."""
    size = -(-task.inputs.shape[-3] // pieces)
    inputs = torch.split(task.inputs, size, -3)
    dts = [None] * len(inputs) if task.dt is None else torch.split(task.dt, size, -2)
    for number, (here, dt) in enumerate(zip(inputs, dts, strict=True)):
        lengths = task.lengths
        if lengths is not None:  # none of these steps, where a sequence ends before
            lengths = (lengths - number * size).clamp(0, here.shape[-3])
        yield replace(task, inputs=here, dt=dt, lengths=lengths)
