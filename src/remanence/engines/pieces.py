"""Gradient checkpointing over time: only the states between chunks are saved; the backward pass recomputes the rest.

This costs a second forward pass and needs the memory of one chunk instead of the whole sequence.
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
    """Run tasks of the same kind and shape in chunks of about the same number of steps, with gradient checkpointing.

    Args:
        run: Function that runs tasks.
        tasks: Tasks to run.
        pieces: Largest number of chunks.
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
    """The chunks of a task, each as a task of its own."""
    size = -(-task.inputs.shape[-3] // pieces)
    inputs = torch.split(task.inputs, size, -3)
    dts = [None] * len(inputs) if task.dt is None else torch.split(task.dt, size, -2)
    for number, (here, dt) in enumerate(zip(inputs, dts, strict=True)):
        lengths = task.lengths
        if lengths is not None:  # zero for sequences that end before this chunk
            lengths = (lengths - number * size).clamp(0, here.shape[-3])
        yield replace(task, inputs=here, dt=dt, lengths=lengths)
