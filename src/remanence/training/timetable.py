"""At which updates something happens."""

from __future__ import annotations

from dataclasses import dataclass

from ..tasks.base import Source
from . import jittered
from .config import Training


@dataclass(frozen=True)
class Timetable:
    """Numbers of updates."""

    epoch: int
    total: int
    evaluate_every: int
    checkpoint_every: int

    @classmethod
    def of(cls, config: Training, source: Source) -> Timetable:
        """The timetable of a configuration for a training set."""
        epoch = config.epoch_updates
        if epoch is None:
            if source.size is None:
                raise ValueError(
                    "expected training.epoch_updates for a task that makes sequences without end, got none"
                )
            epoch = max(1, source.size // config.batch)
            if config.jitter:
                epoch = jittered.usual_updates(source, config.batch)
        evaluate_every = config.evaluate_every or epoch
        return cls(epoch, config.epochs * epoch, evaluate_every, config.checkpoint_every or evaluate_every)

    def evaluates(self, update: int) -> bool:
        """Whether there is an evaluation after so many updates."""
        return update > 0 and (update % self.evaluate_every == 0 or update >= self.total)

    def saves(self, update: int) -> bool:
        """Whether there is a checkpoint after so many updates."""
        return update > 0 and (update % self.checkpoint_every == 0 or update >= self.total)
