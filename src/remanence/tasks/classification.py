"""Classification tasks, with one label per sequence or one per step."""

from __future__ import annotations

from torch import Tensor

from . import metrics
from .base import Batch, Score, Task


class Classification(Task):
    """Minimises cross-entropy and also scores accuracy. Every output counts."""

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return metrics.mean(metrics.cross_entropy(outputs, batch.targets))

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        return {
            "loss": metrics.score(metrics.cross_entropy(outputs, batch.targets)),
            "accuracy": metrics.score(metrics.right(outputs, batch.targets)),
        }
