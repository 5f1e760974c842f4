"""Perplexity by how often a word occurs (tables 1 and 3 of the multi-timescale paper).

A language model says -log p of every word of a text. The perplexity of a bin is exp of the mean over the words of the
text that fall into it; a word falls into the bin of its number of occurrences in the corpus.
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
"""The least number of occurrences of a word in every bin but the last, as in the paper."""


class Counted(Protocol):
    """A corpus that knows how often each of its words occurs."""

    def counts(self, part: Any) -> Any: ...


@dataclass(frozen=True, eq=False)
class BinnedPerplexity(Result):
    """Perplexity by frequency of the word, the most frequent bin first, and of all words."""

    columns: tuple[str, ...]
    """Names of the bins, and "all"."""
    tokens: Integers
    """Words of the text in every column, `(C,)`."""
    perplexity: Numbers
    """`(C,)`; not a number where a bin is empty."""
    bits: float
    """Bits per token of the whole text: per character, where tokens are characters."""


def perplexity_by_frequency(
    losses: Any, targets: Any, counts: Any, *, bounds: Sequence[int] = BOUNDS
) -> BinnedPerplexity:
    """Perplexity of a text, overall and by frequency of the word.

    Args:
        losses: -log p of every word of the text, `(N,)`.
        targets: the words, `(N,)`.
        counts: occurrences of every word of the vocabulary, `(V,)`: in the paper's text those in the training corpus.
        bounds: least number of occurrences in every bin but the last, descending; none for all words alone.
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
    """Perplexity by frequency in the training text, and, as a check, in training, validation and test text together.

    The paper's text bins by the first, "train". Its tables are by the second, "all", as the authors' program counts:
    only with it do the published bins add up to the published perplexity of all words.
    """
    return {
        part: perplexity_by_frequency(losses, targets, corpus.counts(part), bounds=bounds) for part in ("train", "all")
    }


def columns(bounds: Sequence[int] = BOUNDS) -> tuple[str, ...]:
    """Names of the bins, the most frequent first, and "all"."""
    between = [f"{low}-{high - 1}" for high, low in pairwise(bounds)]
    return (f">={bounds[0]}", *between, f"<{bounds[-1]}", "all") if len(bounds) else ("all",)


def bins_of(counts: Any, bounds: Sequence[int] = BOUNDS, words: Integers | None = None) -> Integers:
    """The bin of every word, or of those asked for; 0 is the most frequent.

    Args:
        counts: occurrences of every word of the vocabulary, `(V,)`.
        bounds: least number of occurrences in every bin but the last, descending.
        words: `(N,)`; None for the whole vocabulary.
    """
    counts = integers("counts", counts)
    if list(bounds) != sorted(set(bounds), reverse=True):
        raise ValueError(f"expected bounds of bins in descending order, got {list(bounds)}")
    if words is not None and words.size and not 0 <= words.min() <= words.max() < len(counts):
        raise ValueError(f"expected words of a vocabulary of {len(counts)}, got {words.min()} to {words.max()}")
    # Bounds that a count does not reach.
    found: Integers = (counts[:, None] < numpy.asarray(bounds, dtype=numpy.int64)).sum(1)
    return found if words is None else found[words]


def binned_sums(losses: Numbers, bins: Integers, number: int) -> tuple[Numbers, Integers]:
    """Sums of losses over the words of every bin and over all words, and numbers of words.

    Args:
        losses: `(..., N)`.
        bins: `(N,)`.
        number: of bins.

    Returns:
        `(..., C)` and `(C,)`, where C is the number of bins and one; of a single bin, which is all, one.
    """
    member = bins == numpy.arange(number)[:, None]
    if number > 1:
        member = numpy.concatenate((member, numpy.ones((1, len(bins)), dtype=bool)))
    # A sum over the words that are in, rather than a product with zeros: an infinite loss stays in its bin.
    return numpy.stack([losses[..., row].sum(-1) for row in member], axis=-1), member.sum(1)


def perplexity(sums: Numbers, tokens: Any) -> Numbers:
    """exp of the mean, not a number where there is nothing to take it of."""
    with numpy.errstate(over="ignore"):
        mean = numpy.divide(sums, tokens, out=numpy.full(sums.shape, numpy.nan), where=numpy.asarray(tokens) > 0)
        result: Numbers = numpy.exp(mean)
    return result


def _expect_text(losses: Any, targets: Any) -> tuple[Numbers, Integers]:
    losses, targets = numbers(losses), integers("targets", targets)
    if losses.shape[-1:] != targets.shape or not len(targets):
        raise ValueError(f"expected one loss for every target, got {losses.shape} and {targets.shape}")
    return losses, targets
