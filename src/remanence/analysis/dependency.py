"""Timescales of bracket pairs, and accuracy by the longest one (multi-timescale paper, figure 2).

The timescale of a pair of brackets is the number of symbols from the opening to the closing bracket, both included: 2
for "()". The longest timescale of a string is the longest dependency that a model has to bridge in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from numpy.typing import NDArray

from ..models import SequenceModel
from ..nn.sequence import within
from ..tasks import Batch, Dyck2, Split
from ..tasks.brackets import KINDS, PADDING, SYMBOLS, read
from ..tasks.dyck import BINS, bin_of
from .plain import Result
from .sequences import AT_ONCE, home_of, measuring, outputs_of, repeated, sequences_of

Whole = NDArray[numpy.int64]
Shares = NDArray[numpy.float64]


@dataclass(frozen=True, eq=False)
class AccuracyByDependency(Result):
    """The fraction of strings that are correct at every step, by longest timescale."""

    edges: Shares
    """Edges of the bins, `(bins + 1,)`. A bin includes its left edge; the last one also includes its right edge."""
    strings: Whole
    """Number of strings per bin, `(bins,)`."""
    accuracy: Shares
    """`(models, bins)`; NaN if a bin has no strings."""
    mean: Shares
    """Mean over models, `(bins,)`."""
    std: Shares
    """Sample standard deviation over models; zero for one model."""
    overall: Shares
    """Accuracy on all strings, `(models,)`."""


@dataclass(frozen=True, eq=False)
class PairTimescales(Result):
    """The distribution of timescales over all pairs of brackets."""

    timescales: Whole
    """The even numbers from 2 to the length of the longest string."""
    pairs: Whole
    """Number of pairs with that timescale."""
    share: Shares
    """Fraction of all pairs."""


def pair_timescales(string: str) -> Whole:
    """The timescale of every pair of a balanced string such as "([])", in the order in which they close.

    Args:
        string: A string of balanced brackets.
    """
    found, opened = [], []
    for place, symbol in enumerate(string):
        number = SYMBOLS.find(symbol)
        if 0 <= number < KINDS:
            opened.append((number, place))
        elif opened and opened[-1][0] == number - KINDS:
            found.append(place + 1 - opened.pop()[1])
        else:
            raise ValueError(
                f"expected balanced brackets of {SYMBOLS}, got {string!r}, which is wrong from {string[place:]!r} on"
            )
    if opened:
        raise ValueError(f"expected balanced brackets of {SYMBOLS}, got {string!r}, where {len(opened)} stay open")
    return numpy.array(found, numpy.int64)


def pair_timescale_distribution(task: Dyck2, split: Split = "train") -> PairTimescales:
    """The distribution of timescales in the strings of a split.

    Args:
        task: The task.
        split: "train", "validation" or "test".
    """
    found = read(task.strings(split)).timescales
    pairs = numpy.bincount(found[found > 0], minlength=task.longest + 1)[2::2]
    return PairTimescales(numpy.arange(2, task.longest + 1, 2), pairs, pairs / max(1, pairs.sum()))


def longest_dependencies(batch: Batch) -> Whole:
    """The longest timescale of every string of a batch, `(B,)`.

    Args:
        batch: A batch of `Dyck2`.
    """
    inputs = batch.inputs.cpu()
    there = inputs.sum(-1) > 0
    if batch.lengths is not None:
        there &= within(batch.lengths.cpu(), len(inputs))
    symbols = torch.where(there, inputs.argmax(-1), PADDING)
    longest: Whole = read(symbols.to(torch.int8).numpy()).timescales.max(0).astype(numpy.int64)
    return longest


def accuracy_by_dependency(
    models: SequenceModel | Sequence[SequenceModel],
    task: Dyck2,
    *,
    bins: int = BINS,
    sequences: int | None = None,
    at_once: int = AT_ONCE,
) -> AccuracyByDependency:
    """Score trained models on strings of the test split by their longest dependency.

    Args:
        models: a model, or several that differ only in their weights, such as the seeds of an experiment. All run in
            parallel on the same strings.
        task: task they were trained on.
        bins: number of equal-width bins of the longest timescale, from 2 to the length of the longest string.
        sequences: use only this many strings, from the start; None for all.
        at_once: strings run at a time.
    """
    models = [models] if isinstance(models, SequenceModel) else list(models)
    if not models or bins < 1:
        raise ValueError(f"expected at least one model and one bin, got {len(models)} and {bins}")
    count = (task.test_size or task.validation_size) if sequences is None else sequences
    right, longest = [], []
    with measuring(*models):
        for batch in sequences_of(task, count, device=home_of(models[0])[0], at_once=at_once):
            together = repeated(batch, len(models))
            outputs = outputs_of(models, together)
            right.append(task.right(outputs, together).cpu().numpy())
            longest.append(longest_dependencies(batch))
    is_right = numpy.concatenate(right, 1)
    inside = bin_of(numpy.concatenate(longest), task.longest, bins) == numpy.arange(bins)[:, None]
    strings = inside.sum(1)
    correct = is_right.astype(numpy.float64) @ inside.T
    accuracy = numpy.divide(correct, strings, out=numpy.full(correct.shape, numpy.nan), where=strings > 0)
    return AccuracyByDependency(
        edges=numpy.linspace(2, task.longest, bins + 1),
        strings=strings,
        accuracy=accuracy,
        mean=accuracy.mean(0),
        std=accuracy.std(0, ddof=1) if len(models) > 1 else numpy.zeros(bins),
        overall=is_right.mean(1),
    )
