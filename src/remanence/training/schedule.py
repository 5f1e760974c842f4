"""The learning rate as a function of the number of updates done: a position is all there is to save."""

from __future__ import annotations

import math

from .config import Schedule


def factor(schedule: Schedule, update: int, total: int, epoch_updates: int) -> float:
    """What the learning rate of an update is multiplied with.

    Args:
        schedule: its kind.
        update: updates done before this one, from 0.
        total: updates of the whole training.
        epoch_updates: updates of an epoch.
    """
    if update < schedule.warmup:
        return (update + 1) / schedule.warmup
    done = min(1.0, (update - schedule.warmup) / max(1, total - schedule.warmup))
    if schedule.name == "constant":
        return 1.0
    if schedule.name == "linear":
        return 1 + (schedule.final - 1) * done
    if schedule.name == "cosine":
        return schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * done)) / 2
    if schedule.name == "steps":
        return schedule.factor ** (update // epoch_updates // schedule.every)
    raise ValueError(f"expected schedule.name to be constant, linear, cosine or steps, got {schedule.name!r}")
