"""Paired bootstrap over blocks of the test text: is the difference between two language models significant?

The text is split into consecutive blocks. A resample draws as many blocks as there are, with replacement, the same for
both models, and gives the perplexity of each, overall and by word frequency. A resample needs only the sums of losses
and word counts of each block by bin, so all resamples together are one matmul.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from .arrays import Integers, Numbers, integers, numbers
from .frequency_bins import BOUNDS, bins_of, columns, perplexity
from .plain import Result

AT_ONCE = 2**22
"""Blocks drawn at a time."""


@dataclass(frozen=True, eq=False)
class PairedBootstrap(Result):
    """Perplexity of a first model minus that of a second, positive if the second is better.

    Arrays have one entry for every bin and a last one for all words, `(C,)`.
    """

    columns: tuple[str, ...]
    """Names of the bins, and "all"."""
    first: Numbers
    """Perplexities of the first model over all complete blocks."""
    second: Numbers
    """Perplexities of the second model."""
    difference: Numbers
    """`first - second`."""
    mean: Numbers
    """Mean difference over resamples."""
    std: Numbers
    """Standard deviation of the difference over resamples."""
    low: Numbers
    """The 95 % percentile interval from `low` to `high`: 2.5 % of the resampled differences are below, 2.5 % above."""
    high: Numbers
    """Upper end of the 95 % interval."""
    significant: NDArray[numpy.bool_]
    """Whether the 95 % interval excludes zero."""
    low_999: Numbers
    """Of 10,000 sorted differences plus the one of the original text, number 5; `high_999` is number 9996.

    The authors' code prints these two. They are a 99.9 % interval, not a 95 % interval.
    """
    high_999: Numbers
    """Upper end of the 99.9 % interval."""
    undefined: Integers
    """Number of resamples in which a bin had no words; they are excluded from all of the above."""
    blocks: int
    """Number of complete blocks."""
    block: int
    """Words per block."""
    left_out: int
    """Words after the last complete block."""
    resamples: int
    """Number of resamples."""
    seed: int
    """Seed of the resamples."""


def paired_bootstrap(
    first: Any,
    second: Any,
    targets: Any,
    counts: Any,
    *,
    bounds: Sequence[int] = BOUNDS,
    block: int = 100,
    resamples: int = 10_000,
    seed: int = 0,
) -> PairedBootstrap:
    """Compare two models on the same text.

    Args:
        first: -log p of every word by one model, the baseline, `(N,)`.
        second: the same by the other, `(N,)`.
        targets: the words, `(N,)`.
        counts: occurrences of every word of the vocabulary, `(V,)`.
        bounds: least number of occurrences in every bin except the last; empty for all words only.
        block: words per block. The remainder at the end of the text is dropped.
        resamples: number of resamples.
        seed: seed of the resamples.
    """
    one, two, targets = numbers(first), numbers(second), integers("targets", targets)
    if not one.shape == two.shape == targets.shape:
        raise ValueError(
            f"expected one loss of each model for every target, got {one.shape}, {two.shape} and {targets.shape}"
        )
    losses = numpy.stack((one, two))
    if not numpy.isfinite(losses).all():
        raise ValueError("expected finite losses of both models, got NaN or infinity")
    if block < 1 or resamples < 2:
        raise ValueError(f"expected blocks of at least one word and two resamples, got {block} and {resamples}")
    blocks = len(targets) // block
    if blocks < 2:
        raise ValueError(f"expected a text of at least two blocks of {block} words, got {len(targets)} words")
    sums, tokens = _of_blocks(losses, bins_of(counts, bounds, targets), blocks, block, len(bounds) + 1)
    as_it_is = perplexity(sums.sum(1), tokens.sum(0))
    differences = _resampled(sums, tokens, resamples, seed)
    summaries = [_summary(column, own) for column, own in zip(differences.T, as_it_is[0] - as_it_is[1], strict=True)]
    names = ("difference", "mean", "std", "low", "high", "low_999", "high_999", "undefined")
    found = dict(zip(names, numpy.array(summaries).T, strict=True))
    return PairedBootstrap(
        columns=columns(bounds),
        first=as_it_is[0],
        second=as_it_is[1],
        significant=(found["low"] > 0) | (found["high"] < 0),
        undefined=found.pop("undefined").astype(numpy.int64),
        blocks=blocks,
        block=block,
        left_out=len(targets) - blocks * block,
        resamples=resamples,
        seed=seed,
        **found,
    )


def _of_blocks(losses: Numbers, bins: Integers, blocks: int, block: int, number: int) -> tuple[Numbers, Numbers]:
    """Sums of losses `(2, blocks, C)` and word counts `(blocks, C)`, by block and column."""
    whole = blocks * block
    places = numpy.arange(whole) // block * number + bins[:whole]

    def by_place(weights: Numbers | None) -> Numbers:
        found = numpy.bincount(places, weights, blocks * number).reshape(blocks, number).astype(numpy.float64)
        return found if number == 1 else numpy.concatenate((found, found.sum(1, keepdims=True)), axis=1)

    return numpy.stack([by_place(row[:whole]) for row in losses]), by_place(None)


def _resampled(sums: Numbers, tokens: Numbers, resamples: int, seed: int) -> Numbers:
    """Differences of perplexity, `(resamples, C)`."""
    blocks = len(tokens)
    generator = numpy.random.default_rng(seed)
    together = numpy.concatenate((*sums, tokens), axis=1)
    parts = []
    step = max(1, AT_ONCE // blocks)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = generator.integers(0, blocks, (rows, blocks)) + numpy.arange(rows)[:, None] * blocks
        times = numpy.bincount(drawn.reshape(-1), minlength=rows * blocks).reshape(rows, blocks)
        one, two, words = numpy.split(times.astype(numpy.float64) @ together, 3, axis=1)
        parts.append(perplexity(one, words) - perplexity(two, words))
    return numpy.concatenate(parts)


def _summary(differences: Numbers, as_it_is: float) -> tuple[float, ...]:
    """Statistics of one column, from its resampled differences `(resamples,)`."""
    found = numpy.sort(differences[numpy.isfinite(differences)])
    undefined = len(differences) - len(found)
    if len(found) < 2 or not math.isfinite(as_it_is):
        return (as_it_is, *[math.nan] * 6, undefined)
    low, high = numpy.percentile(found, (2.5, 97.5))
    every = numpy.sort(numpy.append(found, as_it_is))
    rank = math.ceil(len(found) / 2000)
    # Number 5 of 10,001 from below, and number 9996: one less than its mirror image, as in the authors' code.
    wide = every[rank - 1], every[len(found) - rank]
    return (as_it_is, float(found.mean()), float(found.std(ddof=1)), low, high, *wide, undefined)
