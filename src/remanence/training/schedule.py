"""What happens at which update: the learning rate, evaluations, checkpoints, and the end of a run.

All are functions of the number of updates done and of the logged metrics, so a checkpoint needs no state for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..tasks.base import Source, Task
from .batches import usual_updates
from .config import Schedule, Training


def lr_factor(schedule: Schedule, update: int, total: int, epoch_updates: int) -> float:
    """The factor of the learning rate at an update.

    Args:
        schedule: Schedule.
        update: Updates done before this one, from 0.
        total: Updates of the whole training.
        epoch_updates: Updates per epoch.
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


@dataclass(frozen=True)
class Timetable:
    """When to evaluate, save and end, in updates."""

    epoch: int
    total: int
    evaluate_every: int
    checkpoint_every: int

    @classmethod
    def of(cls, config: Training, source: Source) -> Timetable:
        """The timetable of a configuration for this training source."""
        epoch = config.epoch_updates
        if epoch is None:
            if source.size is None:
                raise ValueError(
                    "expected training.epoch_updates for a task that generates sequences endlessly, got none"
                )
            epoch = max(1, source.size // config.batch)
            if config.jitter:
                epoch = usual_updates(source, config.batch)
        evaluate_every = config.evaluate_every or epoch
        return cls(epoch, config.epochs * epoch, evaluate_every, config.checkpoint_every or evaluate_every)

    def evaluates(self, update: int) -> bool:
        """Whether to evaluate after this many updates."""
        return update > 0 and (update % self.evaluate_every == 0 or update >= self.total)

    def saves(self, update: int) -> bool:
        """Whether to save a checkpoint after this many updates."""
        return update > 0 and (update % self.checkpoint_every == 0 or update >= self.total)


Line = dict[str, Any]
"""A line of metrics.jsonl."""
LEVELS = (0.9, 0.99, 0.999)
"""Goals for `updates_to`."""


def lower_is_better(task: Task, name: str) -> bool:
    """Whether lower values of a score are better."""
    return name == "loss" or (name == task.goal and not task.higher_is_better)


def best_of(lines: Sequence[Line], task: Task, by: str | None = None) -> Line | None:
    """The evaluation with the best goal, or with the best score `by`. Ties go to the earlier evaluation."""
    name = task.goal if by is None else by
    if lines and "validation" in lines[-1] and name not in lines[-1]["validation"]:
        raise ValueError(
            f"expected training.best_by to be one of the scores {', '.join(lines[-1]['validation'])}, got {name!r}"
        )
    sign = -1 if lower_is_better(task, name) else 1
    found = [line for line in lines if line.get("validation", {}).get(name) is not None]
    return max(found, key=lambda line: float(sign * line["validation"][name]), default=None)


def verdict(lines: Sequence[Line], config: Training, task: Task, total: int) -> str | None:
    """The status of a run that ends with its latest evaluation; None if it continues.

    "converged", "failed" or "stalled" as defined by `Stop`; after the last update "finished", or "not converged" if
    `Stop.reached` sets a target.
    """
    stop = config.stop
    line = lines[-1]
    scores = line.get("validation", {})
    if stop.reached and all(_reaches(task, scores, name, level) for name, level in stop.reached.items()):
        return "converged"
    if (
        stop.failed
        and line["epoch"] >= stop.failed_after
        and not any(_reaches(task, scores, name, level) for name, level in stop.failed.items())
    ):
        return "failed"
    best = best_of(lines, task, config.best_by)
    if stop.patience is not None and best is not None:
        since = sum(other["update"] > best["update"] for other in lines)
        if since >= stop.patience:
            return "stalled"
    if line["update"] < total:
        return None
    return "not converged" if stop.reached else "finished"


def _reaches(task: Task, scores: dict[str, float], name: str, level: float) -> bool:
    if name not in scores:
        raise ValueError(f"expected training.stop to use scores out of {', '.join(scores)}, got {name!r}")
    value = scores[name]
    if value is None:
        return False
    return value <= level if lower_is_better(task, name) else value >= level


def updates_to(lines: Sequence[Line], task: Task) -> dict[str, int | None]:
    """The first evaluated update at which the goal reached each of `LEVELS`, for goals such as accuracy."""
    if lower_is_better(task, task.goal):
        return {}

    def first(level: float) -> int | None:
        reached = (line["update"] for line in lines if (line.get("validation", {}).get(task.goal) or 0) >= level)
        return next(reached, None)

    return {str(level): first(level) for level in LEVELS}
