"""Tasks whose outputs are classes: one after the last step, or one at every step."""

from __future__ import annotations

from torch import Tensor

from . import metrics
from .base import Batch, Score, Task


class Classification(Task):
    """Cross-entropy is minimised; the share of right answers is scored beside it. Every output counts."""

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return metrics.mean(metrics.cross_entropy(outputs, batch.targets))

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        return {
            "loss": metrics.score(metrics.cross_entropy(outputs, batch.targets)),
            "accuracy": metrics.score(metrics.right(outputs, batch.targets)),
        }
