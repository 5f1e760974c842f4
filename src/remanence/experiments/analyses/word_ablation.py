"""How long a replaced word leaves a trace in the cell states of language models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from ... import analysis
from ...analysis.arrays import Numbers
from ...language import Corpus
from ...table import Table
from .trained import Findings, Trained, in_order, keep
from .words import corpus_of, is_assigned, language_model, rounded, steps, text_of

SHOWN = (1, 5, 20, 50, 100, 200)
"""Numbers of words after the replaced one that tables show."""
FADED = 0.1
"""A trace below this value counts as faded."""


def word_ablation(
    runs: Sequence[Trained],
    *,
    words: int = 200,
    positions: int = 500,
    warm_up: int = 70,
    layer: int = 2,
    group: int = 100,
    seed: int = 0,
    length: int | None = None,
    at_once: int = 100,
) -> Findings:
    """Replace a word by the unknown token and compare the cell states with and without it, k words later.

    The data, by need, model and seed, with K + 1 steps, L layers and G groups of units of one layer, if its timescales
    were assigned:

        steps            0 ... K
        by_layer         (L, K + 1): D(k) / D(0)
        by_layer_first   (L): D(0)
        layer            the layer with groups, from 1; None without groups
        groups           {means (G), longest (G), sizes (G)}: timescales in words, long to short; None without groups
        by_group         (G, K + 1): D(k) / D(0); empty without groups
        by_group_first   (G): D(0)
        positions        number of words that were replaced, one at a time
        faded            {by_layer (L), by_group (G)}: the first k at which D(k) / D(0) is below 0.1, or None

    Args:
        runs: word-level language models.
        words: words after the replaced one, K.
        positions: number of random positions in the test text.
        warm_up: words before the position, which the model reads from a zero state.
        layer: number of the layer to split into groups, from 1.
        group: units per group.
        seed: seed of the positions.
        length: use only the first `length` words of the test text; None for all.
        at_once: positions per batch.
    """
    data: dict[str, Any] = {}
    for run in in_order(runs):
        corpus, model = corpus_of(run), language_model(run)
        found = analysis.word_ablation(
            model,
            text_of(corpus, "test", length),
            unknown_word(corpus),
            words=words,
            positions=positions,
            warm_up=warm_up,
            layer=layer - 1 if is_assigned(model, layer) else None,
            group=group,
            seed=seed,
            at_once=at_once,
        )
        keep(data, run, plain(found))
    return Findings(data, word_ablation_tables(data))


def word_ablation_tables(data: Mapping[str, Any]) -> list[Table]:
    """For every need a table of all layers, and one of groups of units if timescales were assigned."""
    tables = []
    for need, models in data.items():
        by_layer: dict[str, list[Numbers]] = {}
        by_group: dict[str, list[Numbers]] = {}
        layers = set()
        for name, seeds in models.items():
            for found in seeds.values():
                for number, curve in enumerate(found["by_layer"], 1):
                    by_layer.setdefault(f"{name}, layer {number}", []).append(numpy.array(curve, dtype=float))
                if found["groups"] is not None:
                    layers.add(found["layer"])
                    for mean, curve in zip(found["groups"]["means"], found["by_group"], strict=True):
                        by_group.setdefault(f"{name}, timescale {steps(mean)}", []).append(
                            numpy.array(curve, dtype=float)
                        )
        tables.append(table(f"trace of a replaced word, {need}, k words after it", by_layer))
        if by_group:
            tables.append(table(f"the same, {need}, by groups of units of layer {min(layers)}", by_group))
    return tables


def unknown_word(corpus: Corpus) -> int:
    """Id of the unknown token, which replaces a word."""
    vocabulary = corpus.vocabulary
    if vocabulary.unknown is None:
        raise ValueError(f"expected a corpus with an unknown token, got {corpus.name!r}, which has none")
    return vocabulary.index[vocabulary.unknown]


def plain(found: analysis.WordAblation) -> dict[str, Any]:
    """For the result file, without the indices of units and positions."""
    groups = found.groups
    whole: dict[str, Any] = rounded(
        analysis.as_plain(
            {
                "steps": numpy.arange(found.by_layer.shape[1]),
                "by_layer": found.by_layer,
                "by_layer_first": found.by_layer_first,
                "layer": None if found.layer is None else found.layer + 1,
                "groups": None
                if groups is None
                else {
                    "means": groups.means,
                    "longest": groups.longest,
                    "sizes": [len(units) for units in groups.units],
                },
                "by_group": found.by_group,
                "by_group_first": found.by_group_first,
                "positions": len(found.positions),
                "faded": {
                    "by_layer": [faded(curve) for curve in found.by_layer],
                    "by_group": [faded(curve) for curve in found.by_group],
                },
            }
        )
    )
    return whole


def faded(curve: Numbers) -> int | None:
    """The first k at which less than a tenth remains, or None."""
    below = numpy.flatnonzero(curve < FADED)
    return int(below[0]) if len(below) else None


def table(title: str, curves: dict[str, list[Numbers]]) -> Table:
    """One row per curve, means over seeds."""
    last = len(next(iter(curves.values()))[0]) - 1
    shown = [k for k in SHOWN if k <= last] or [last]
    rows = []
    for name, seeds in curves.items():
        mean = numpy.stack(seeds).mean(0)
        end = faded(mean)
        after = f"more than {last}" if end is None else str(end)
        rows.append((name, str(len(seeds)), *(f"{mean[k]:.3g}" for k in shown), after))
    headings = ("", "seeds", *(f"k={k}" for k in shown), f"below {FADED:g} from k")
    return Table(title, headings, rows, notes=["|c - c'| / |c|, relative to its value at the replaced word, k = 0."])
