"""Helpers for analyses of language models: models, corpora, texts and layers."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ...language import Corpus
from ...models import LanguageModel
from ...models.text import tokens_of
from ...nn import Recurrent
from ...tasks import Text
from ...tasks.streams import corpus_of as corpus_named
from .trained import Trained

Part = Literal["validation", "test"]


def language_model(run: Trained) -> LanguageModel:
    """The trained model, in evaluation mode."""
    return run.language_model().eval()


def corpus_of(run: Trained) -> Corpus:
    """The corpus that a model was trained on, or its Markov copy."""
    task = run.task
    if not isinstance(task, Text):
        raise ValueError(f"expected models trained on a text, got task {task.name!r}")
    return corpus_named(task.corpus, task.level, task.markov)


def text_of(corpus: Corpus, part: Part = "test", length: int | None = None) -> Tensor:
    """Token ids of the first `length` words of a split, all of them if None; int64 `(N,)` on the CPU."""
    if length is not None and length < 2:
        raise ValueError(f"expected length to be at least two words, got {length}")
    return tokens_of(corpus.split(part)[:length], len(corpus.vocabulary), None)


def layer(model: LanguageModel, number: int) -> Recurrent:
    """A layer by its number, counted from 1 at the input as in the papers."""
    if not 1 <= number <= len(model.layers):
        raise ValueError(f"expected a layer from 1 to {len(model.layers)}, got {number}")
    found = model.layers[number - 1]
    assert isinstance(found, Recurrent)
    return found


def is_assigned(model: LanguageModel, number: int) -> bool:
    """Whether the timescales of a layer (counted from 1) were assigned rather than learned."""
    return layer(model, number).timescales[0] is not None


def rounded(values: Any, digits: int = 6) -> Any:
    """Round every number to `digits` significant digits, which keeps the files of large arrays small."""
    if isinstance(values, dict):
        return {name: rounded(value, digits) for name, value in values.items()}
    if isinstance(values, list):
        return [rounded(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if isinstance(values, float) else values


def median(values: Tensor) -> float:
    """Median; the mean of the two middle values for an even count."""
    return float(torch.quantile(values.double(), 0.5))


def steps(value: float) -> str:
    """Format a timescale for a table."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
