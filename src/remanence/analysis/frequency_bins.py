"""Perplexity by word frequency (tables 1 and 3 of the multi-timescale paper).

A language model gives -log p for every word of a text. The perplexity of a bin is exp of the mean over the words of the
text in that bin; the bin of a word is given by its number of occurrences in the corpus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy

from .arrays import Integers, Numbers, integers, numbers
from .plain import Result

BOUNDS = (10_000, 1_000, 100)
"""The least number of occurrences of a word in every bin except the last, as in the paper."""


class Counted(Protocol):
    """A corpus with word counts."""

    def counts(self, part: Any) -> Any: ...


@dataclass(frozen=True, eq=False)
class BinnedPerplexity(Result):
    """Perplexity by word frequency, most frequent bin first, and of all words."""

    columns: tuple[str, ...]
    """Names of the bins, and "all"."""
    tokens: Integers
    """Number of words of the text in every column, `(C,)`."""
    perplexity: Numbers
    """`(C,)`; NaN if a bin is empty."""
    bits: float
    """Bits per token of the whole text: bits per character if tokens are characters."""


def perplexity_by_frequency(
    losses: Any, targets: Any, counts: Any, *, bounds: Sequence[int] = BOUNDS
) -> BinnedPerplexity:
    """Perplexity of a text, overall and by word frequency.

    Args:
        losses: -log p of every word of the text, `(N,)`.
        targets: the words, `(N,)`.
        counts: occurrences of every word of the vocabulary, `(V,)`: in the paper's text those in the training corpus.
        bounds: least number of occurrences in every bin except the last, descending; empty for all words only.
    """
    losses, targets = _expect_text(losses, targets)
    if losses.ndim != 1:
        raise ValueError(f"expected losses of one text, (N,), got shape {losses.shape}")
    sums, tokens = binned_sums(losses, bins_of(counts, bounds, targets), len(bounds) + 1)
    return BinnedPerplexity(
        columns=columns(bounds),
        tokens=tokens,
        perplexity=perplexity(sums, tokens),
        bits=float(losses.mean() / math.log(2)),
    )


def both_countings(
    losses: Any, targets: Any, corpus: Counted, *, bounds: Sequence[int] = BOUNDS
) -> dict[str, BinnedPerplexity]:
    """Perplexity by word frequency in the training text ("train"), and in all three splits together ("all").

    The text of the paper describes "train". Its tables use "all", as the authors' code counts: only with it do the
    published bins add up to the published perplexity of all words.

    Args:
        losses: -log p of every word, `(N,)`.
        targets: The words, `(N,)`.
        corpus: Corpus with word counts.
        bounds: Bin limits of the word frequency.
    """
    return {
        part: perplexity_by_frequency(losses, targets, corpus.counts(part), bounds=bounds) for part in ("train", "all")
    }


def columns(bounds: Sequence[int] = BOUNDS) -> tuple[str, ...]:
    """Names of the bins, most frequent first, and "all"."""
    between = [f"{low}-{high - 1}" for high, low in pairwise(bounds)]
    return (f">={bounds[0]}", *between, f"<{bounds[-1]}", "all") if len(bounds) else ("all",)


def bins_of(counts: Any, bounds: Sequence[int] = BOUNDS, words: Integers | None = None) -> Integers:
    """The bin of every word, or of the requested ones; 0 is the most frequent.

    Args:
        counts: occurrences of every word of the vocabulary, `(V,)`.
        bounds: least number of occurrences in every bin except the last, descending.
        words: token ids, `(N,)`; None for the whole vocabulary.
    """
    counts = integers("counts", counts)
    if list(bounds) != sorted(set(bounds), reverse=True):
        raise ValueError(f"expected bounds of bins in descending order, got {list(bounds)}")
    if words is not None and words.size and not 0 <= words.min() <= words.max() < len(counts):
        raise ValueError(f"expected words of a vocabulary of {len(counts)}, got {words.min()} to {words.max()}")
    # The number of bounds that a count does not reach.
    found: Integers = (counts[:, None] < numpy.asarray(bounds, dtype=numpy.int64)).sum(1)
    return found if words is None else found[words]


def binned_sums(losses: Numbers, bins: Integers, number: int) -> tuple[Numbers, Integers]:
    """Sums of losses over the words of every bin and over all words, and the number of words in each.

    Args:
        losses: `(..., N)`.
        bins: `(N,)`.
        number: number of bins.

    Returns:
        `(..., C)` and `(C,)`, where C is the number of bins plus one; with a single bin, which is all words, C is 1.
    """
    member = bins == numpy.arange(number)[:, None]
    if number > 1:
        member = numpy.concatenate((member, numpy.ones((1, len(bins)), dtype=bool)))
    # Sum over the words of a bin rather than multiply by zeros, so that an infinite loss stays in its bin.
    return numpy.stack([losses[..., row].sum(-1) for row in member], axis=-1), member.sum(1)


def perplexity(sums: Numbers, tokens: Any) -> Numbers:
    """exp of the mean; NaN if there are no tokens."""
    with numpy.errstate(over="ignore"):
        mean = numpy.divide(sums, tokens, out=numpy.full(sums.shape, numpy.nan), where=numpy.asarray(tokens) > 0)
        result: Numbers = numpy.exp(mean)
    return result


def _expect_text(losses: Any, targets: Any) -> tuple[Numbers, Integers]:
    losses, targets = numbers(losses), integers("targets", targets)
    if losses.shape[-1:] != targets.shape or not len(targets):
        raise ValueError(f"expected one loss for every target, got {losses.shape} and {targets.shape}")
    return losses, targets
