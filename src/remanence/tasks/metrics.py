"""Losses and scores of several replicas at once. R is the first dimension; nothing synchronises with the device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..cells import wide
from .base import Score


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of every prediction, -log softmax(outputs)[target].

    Args:
        outputs: `(R, ..., O)` logits.
        targets: `(R, ...)` classes.

    Returns:
        `(R, ...)`, float32 or wider.
    """
    logits = outputs.to(wide(outputs.dtype)).flatten(0, -2)
    return functional.cross_entropy(logits, targets.flatten(), reduction="none").view(targets.shape)


def mean(values: Tensor, counts: Tensor | None = None) -> Tensor:
    """The mean for every replica, `(R,)`.

    Args:
        values: `(R, ...)`.
        counts: booleans of the same shape: the values to average. None for all.
    """
    if counts is None:
        return values.flatten(1).mean(1)
    return torch.where(counts, values, 0).flatten(1).sum(1) / counts.flatten(1).sum(1)


def score(values: Tensor, counts: Tensor | None = None) -> Score:
    """Sum and count for every replica, `(R,)`, whose ratio is `mean`. Same arguments as `mean`."""
    return score_by_sequence(values.flatten(1), None if counts is None else counts.flatten(1))


def score_by_sequence(values: Tensor, counts: Tensor | None = None) -> Score:
    """Sum and count over the steps for every sequence, `(R, B)`, of values and counts `(R, T, B)`."""
    if counts is None:
        total = values.sum(1, dtype=torch.float64)
        return Score(total, torch.full_like(total, values.shape[1]))
    return Score(torch.where(counts, values, 0).sum(1, dtype=torch.float64), counts.sum(1, dtype=torch.float64))


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the class with the largest logit is the target: `(R, ..., O)` and `(R, ...)` to `(R, ...)` booleans."""
    return outputs.argmax(-1) == targets
