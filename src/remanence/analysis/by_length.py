"""Accuracy of models by sequence length (pLSTM figure 4).

Every sequence is scored as its own replica: a task's scores are sums over the sequences of a replica, so one call gives
the score of every sequence, for any task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy
import torch
from torch import Tensor

from ..models import SequenceModel
from ..tasks.base import Batch, Task
from .arrays import Integers, Numbers, numbers
from .plain import Result
from .sequences import AT_ONCE, home_of, measuring, outputs_of, repeated, sequences_of

BINS = 8


@dataclass(frozen=True, eq=False)
class ScoresOfSequences(Result):
    """One score of N sequences by M models."""

    score: str
    """Name of the score."""
    totals: Numbers
    """Sum over the steps that count in a sequence, `(M, N)`."""
    counts: Numbers
    """Number of steps that count in it, `(M, N)`; `totals / counts` is its score."""
    lengths: Integers
    """Steps of every sequence, `(N,)`."""
    groups: Integers | None
    """The group of every sequence, `(N,)`; None if the task has no groups."""


@dataclass(frozen=True, eq=False)
class AccuracyByLength(Result):
    """A score by sequence length."""

    score: str
    """Name of the score."""
    labels: list[str]
    """Labels of K bins."""
    shortest: Integers
    """Length of the shortest sequence in every bin, `(K,)`; 0 if it is empty."""
    longest: Integers
    """Length of the longest sequence in every bin, `(K,)`."""
    sequences: Integers
    """Number of sequences per bin, `(K,)`."""
    values: Numbers
    """`(M, K)` by model and bin; NaN if a bin is empty."""
    mean: Numbers
    """Mean over all sequences of all models, `(K,)`."""
    standard_error: Numbers
    """Standard error of that mean, with every sequence of every model as one sample, `(K,)`."""
    overall: Numbers
    """Score on all sequences, `(M,)`."""


def accuracy_by_length(
    models: SequenceModel | Sequence[SequenceModel],
    task: Task,
    *,
    edges: Sequence[int] | None = None,
    bins: int = BINS,
    score: str | None = None,
    labels: Sequence[str] | None = None,
    sequences: int = 10_000,
    seed: int = 0,
    at_once: int = AT_ONCE,
) -> AccuracyByLength:
    """Score trained models by sequence length, or by the groups of a task.

    Args:
        models: a model, or several that differ only in their weights, such as the seeds of an experiment.
        task: task they were trained on. IMDB and Dyck-2 have groups: by length before truncation, and by longest
            dependency.
        edges: a bin has lengths from one edge up to, but not including, the next; the last one includes its right edge.
            None for the groups of the task if it has any, else for equal-width bins.
        bins: number of equal-width bins between the shortest and the longest sequence.
        score: name of the score; None for the goal of the task.
        labels: names of the bins.
        sequences: maximum number of sequences.
        seed: seed of the sequences.
        at_once: sequences run at a time.
    """
    found = scores_of_sequences(models, task, score=score, sequences=sequences, seed=seed, at_once=at_once)
    if edges is None and found.groups is not None:
        names = [f"group {number}" for number in range(int(found.groups.max()) + 1)]
        inside = found.groups == numpy.arange(len(names))[:, None]
    else:
        bounds = _bounds(found.lengths, edges, bins)
        names = [f"{low}-{high - 1}" for low, high in pairwise(bounds)]
        names[-1] = f"{bounds[-2]}-{bounds[-1]}"
        place = numpy.digitize(found.lengths, bounds[1:-1])
        place[(found.lengths < bounds[0]) | (found.lengths > bounds[-1])] = -1
        inside = place == numpy.arange(len(names))[:, None]
    if labels is not None and len(labels) != len(names):
        raise ValueError(f"expected labels of {len(names)} bins, got {len(labels)}")
    return _binned(found, inside, list(labels or names))


def scores_of_sequences(
    models: SequenceModel | Sequence[SequenceModel],
    task: Task,
    *,
    score: str | None = None,
    sequences: int = 10_000,
    seed: int = 0,
    at_once: int = AT_ONCE,
) -> ScoresOfSequences:
    """One score of every sequence by every model. Same arguments as `accuracy_by_length`.

    Args:
        models: Trained models.
        task: The task.
        score: Name of the score; None for the goal of the task.
        sequences: Maximum number of sequences.
        seed: Seed of the sequences.
        at_once: Sequences per batch.
    """
    models = [models] if isinstance(models, SequenceModel) else list(models)
    if not models:
        raise ValueError("expected at least one model, got none")
    wanted = score or task.goal
    totals, counts, lengths, groups = [], [], [], []
    with measuring(*models):
        for batch in sequences_of(task, sequences, seed=seed, device=home_of(models[0])[0], at_once=at_once):
            together = repeated(batch, len(models))
            outputs = outputs_of(models, together)
            found = task.scores(_alone(outputs), _each_alone(together))
            if wanted not in found:
                raise ValueError(f"expected score to be one of {', '.join(found)}, got {wanted!r}")
            size = batch.inputs.shape[1]
            totals.append(numbers(found[wanted].total).reshape(len(models), size))
            counts.append(numbers(found[wanted].count).reshape(len(models), size))
            steps = torch.full((size,), len(batch.inputs)) if batch.lengths is None else batch.lengths
            lengths.append(steps.cpu().numpy().astype(numpy.int64))
            if batch.groups is not None:
                groups.append(batch.groups.cpu().numpy().astype(numpy.int64))
    return ScoresOfSequences(
        score=wanted,
        totals=numpy.concatenate(totals, 1),
        counts=numpy.concatenate(counts, 1),
        lengths=numpy.concatenate(lengths),
        groups=numpy.concatenate(groups) if groups else None,
    )


def _alone(outputs: Tensor) -> Tensor:
    """From `(R, T, B, O)` to `(R B, T, 1, O)`, or from `(R, B, O)` to `(R B, 1, O)`."""
    if outputs.dim() == 3:
        return outputs.flatten(0, 1).unsqueeze(1)
    return outputs.transpose(1, 2).flatten(0, 1).unsqueeze(2)


def _each_alone(batch: Batch) -> Batch:
    """Batches of R replicas as R B batches of one sequence, with R B as the first dimension."""

    def one(name: str) -> Tensor | None:
        value: Tensor | None = getattr(batch, name)
        if value is None:
            return None
        if value.dim() == 2:  # (R, B): one value per sequence
            return value.flatten().unsqueeze(1)
        return value.transpose(1, 2).flatten(0, 1).unsqueeze(2)

    return Batch(**{field.name: one(field.name) for field in fields(Batch)})  # type: ignore[arg-type]


def _bounds(lengths: Integers, edges: Sequence[int] | None, bins: int) -> list[int]:
    if edges is not None:
        bounds = [int(edge) for edge in edges]
        if len(bounds) < 2 or bounds != sorted(set(bounds)):
            raise ValueError(f"expected at least two edges in ascending order, got {list(edges)}")
        return bounds
    if bins < 1:
        raise ValueError(f"expected at least one bin, got {bins}")
    low, high = int(lengths.min()), int(lengths.max())
    bounds = sorted({round(edge) for edge in numpy.linspace(low, high, bins + 1)})
    return bounds if len(bounds) > 1 else [low, low]


def _binned(found: ScoresOfSequences, inside: numpy.ndarray, labels: list[str]) -> AccuracyByLength:
    """Average the scores of sequences in bins; `inside` is `(K, N)` booleans."""
    weights = inside.astype(numpy.float64)
    totals, counts = found.totals @ weights.T, found.counts @ weights.T  # (M, K)
    mean = _ratio(totals.sum(0), counts.sum(0))
    # The error of a ratio of sums; equal to that of the mean if all counts are equal.
    residuals = found.totals[:, None] - numpy.nan_to_num(mean)[:, None] * found.counts[:, None]  # (M, K, N)
    squares = (numpy.square(residuals) * weights).sum((0, 2))
    samples = len(found.totals) * inside.sum(1)
    correction = _ratio(samples, samples - 1)
    shortest = numpy.where(inside, found.lengths, numpy.iinfo(numpy.int64).max).min(1)
    return AccuracyByLength(
        score=found.score,
        labels=labels,
        shortest=numpy.where(inside.any(1), shortest, 0),
        longest=numpy.where(inside, found.lengths, 0).max(1),
        sequences=inside.sum(1),
        values=_ratio(totals, counts),
        mean=mean,
        standard_error=numpy.sqrt(squares * correction) * _ratio(numpy.ones(len(mean)), counts.sum(0)),
        overall=_ratio(found.totals.sum(1), found.counts.sum(1)),
    )


def _ratio(sums: Numbers | Integers, counts: Numbers | Integers) -> Numbers:
    """The ratio; NaN where the count is zero."""
    out = numpy.full(numpy.shape(sums), numpy.nan)
    return numpy.divide(sums, counts, out=out, where=numpy.asarray(counts) > 0)
