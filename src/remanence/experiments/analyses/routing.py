"""Which words suffer when units of one timescale are silenced (set to zero)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch

from ... import analysis
from ...analysis.frequency_bins import BOUNDS, binned_sums, bins_of, columns, perplexity
from ...analysis.groups import timescales_of
from ...language import Corpus
from ...models import LanguageModel
from ...table import Table
from .by_frequency import COUNTINGS
from .trained import Findings, Trained, in_order, keep
from .words import Part, corpus_of, language_model, rounded, steps, text_of
from .words import layer as layer_of


def routing(
    runs: Sequence[Trained],
    *,
    layer: int = 2,
    group: int = 50,
    bounds: Sequence[int] = BOUNDS,
    part: Part = "test",
    length: int | None = None,
    chunk: int = 70,
) -> Findings:
    """Perplexity by word frequency without each group of units of a layer, relative to the whole model.

    The data, by need, model and seed, with G groups and C columns (bins, the most frequent first, and "all"):

        layer       number of the layer, from 1
        groups      {means (G), longest (G), sizes (G)}: timescales in words, long to short, and numbers of units
        train, all  by the text where occurrences are counted: {columns (C), tokens (C), intact (C), perplexity (G, C),
                    ratio (G, C): perplexity / intact, most (C): the group with the largest ratio}

    Args:
        runs: word-level language models.
        layer: number of the layer, from 1 at the input.
        group: units per group, consecutive in the order of their timescales.
        bounds: minimum number of occurrences in every bin but the last.
        part: split of the corpus.
        length: use only the first `length` words; None for all.
        chunk: words per forward pass.
    """
    data: dict[str, Any] = {}
    for run in in_order(runs):
        found = silenced(
            language_model(run), corpus_of(run), layer, group, bounds, part=part, length=length, chunk=chunk
        )
        keep(data, run, rounded(found))
    return Findings(data, routing_tables(data))


def routing_tables(data: Mapping[str, Any]) -> list[Table]:
    """A table for every need, model and counting."""
    return [
        table(need, name, seeds, counting)
        for need, models in data.items()
        for name, seeds in models.items()
        for counting in COUNTINGS
    ]


def silenced(
    model: LanguageModel,
    corpus: Corpus,
    layer: int,
    group: int,
    bounds: Sequence[int],
    *,
    part: Part,
    length: int | None,
    chunk: int,
) -> dict[str, Any]:
    """Run one model with all groups as one batch, and bin the losses by both countings."""
    own = timescales_of(layer_of(model, layer))
    groups = analysis.groups_of_units(own, group)
    kept = torch.ones(len(groups.units) + 1, len(own), dtype=torch.bool)  # nothing is silenced in the first row
    for row, units in zip(kept[1:], groups.units, strict=True):
        row[torch.from_numpy(units)] = False
    text = text_of(corpus, part, length)
    losses = analysis.losses_without(model, text, kept, layer=layer - 1, chunk=chunk)
    found: dict[str, Any] = {
        "layer": layer,
        "groups": {"means": groups.means, "longest": groups.longest, "sizes": [len(units) for units in groups.units]},
    }
    for counting in COUNTINGS:
        counts = corpus.counts(counting)  # type: ignore[arg-type]
        sums, tokens = binned_sums(losses, bins_of(counts, bounds, text[1:].numpy()), len(bounds) + 1)
        every = perplexity(sums, tokens)
        ratio = every[1:] / every[0]
        found[counting] = {
            "columns": columns(bounds),
            "tokens": tokens,
            "intact": every[0],
            "perplexity": every[1:],
            "ratio": ratio,
            "most": [None if numpy.isnan(column).any() else int(column.argmax()) for column in ratio.T],
        }
    plain: dict[str, Any] = analysis.as_plain(found)
    return plain


def table(need: str, model: str, found: Mapping[str, dict[str, Any]], counting: str) -> Table:
    """One row per group, means over seeds."""
    seeds = list(found.values())
    first = seeds[0]
    ratios = numpy.stack([numpy.array(one[counting]["ratio"], dtype=numpy.float64) for one in seeds]).mean(0)
    groups = first["groups"]
    rows = [
        (steps(mean), str(size), *("-" if numpy.isnan(ratio) else f"{ratio:.4f}" for ratio in line))
        for mean, size, line in zip(groups["means"], groups["sizes"], ratios, strict=True)
    ]
    most = [
        f"{column}: {steps(groups['means'][int(line.argmax())])}"
        for column, line in zip(first[counting]["columns"], ratios.T, strict=True)
        if not numpy.isnan(line).any()
    ]
    title = (
        f"perplexity without a group of units of layer {first['layer']}, relative to the whole model, {need}, {model}, "
        f"by occurrences in {COUNTINGS[counting]}"
    )
    notes = [f"Mean timescale of the group that costs most: {', '.join(most)}. Means over seeds: {len(seeds)}."]
    return Table(title, ("timescale", "units", *first[counting]["columns"]), rows, words=0, notes=notes)
