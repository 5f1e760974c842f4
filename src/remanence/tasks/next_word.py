"""Word-level language modelling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from . import metrics
from .base import Batch, Score
from .text import Text


@dataclass(frozen=True, kw_only=True)
class NextWord(Text):
    """Predict every word from the previous ones; the goal is perplexity.

    The multi-timescale paper reads the Penn Treebank and WikiText-2 in chunks of about 70 words and carries the state.
    """

    name: ClassVar[str] = "next-word"
    goal: ClassVar[str] = "perplexity"

    corpus: str = "ptb"
    """Name of the corpus, see `remanence.language.KNOWN`."""
    chunk: int = 70
    """Steps per chunk."""

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        return {"loss": metrics.score(metrics.cross_entropy(outputs, batch.targets), batch.counts)}

    def derived(self, scores: dict[str, float]) -> dict[str, float]:
        loss = scores["loss"]
        return {"perplexity": math.exp(loss) if loss < 700 else math.inf}

    @property
    def references(self) -> dict[str, float]:
        """Scores of a uniform prediction over all words."""
        return {"loss": math.log(self.symbols), "perplexity": float(self.symbols)}
