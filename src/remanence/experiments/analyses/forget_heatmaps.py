"""Heat maps of the forget values of all units over a passage of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from ... import analysis, timescales
from ...analysis.arrays import numbers
from ...analysis.forget_maps import ForgetMap, forget_maps
from ...models import LanguageModel
from ...models.text import words_of
from ...table import Table
from .trained import Findings, Trained, by_need_and_model
from .words import corpus_of, is_assigned, language_model, rounded, steps, text_of


def forget_heatmaps(runs: Sequence[Trained], *, number: int = 6, chunk: int = 70, group: int = 10) -> Findings:
    """Forget values in one chunk of the test text, for groups of units sorted from long to short memory.

    Uses the first seed of every model. The data, by need and model, with T words and R rows per layer:

        seed     seed of the model
        offset   words of the test text before the chunk
        words    T words
        layers   per layer {values (R, T): mean forget value of each group, 0 to 1; units (R): size of each group;
                 forget (R): mean over the words; assigned (R), assigned_median (R): mean and median assigned
                 timescale, None if timescales were not assigned}

    Args:
        runs: word-level language models.
        number: number of the chunk, from 1. The model also reads the chunks before it, from a zero state.
        chunk: words per chunk.
        group: units per row.
    """
    if min(number, chunk) < 1:
        raise ValueError(f"expected number and chunk to be at least 1, got {number} and {chunk}")
    data: dict[str, Any] = {}
    rows = []
    for need, models in by_need_and_model(runs).items():
        for name, (run, *_) in models.items():
            corpus, model = corpus_of(run), language_model(run)
            text = text_of(corpus, "test", max(2, number * chunk))
            if len(text) < number * chunk:
                raise ValueError(f"expected a test text of {number} chunks of {chunk} words, got {len(text)} words")
            words = words_of(text.tolist(), corpus.vocabulary)
            found = forget_maps(model, text, group=group, first=(number - 1) * chunk, steps=chunk, labels=words)
            layers = [plain(model, place, one) for place, one in enumerate(found.layers, 1)]
            data.setdefault(need, {})[name] = {
                "seed": run.seed,
                "offset": found.first,
                "words": found.labels,
                "layers": layers,
            }
            rows += [(need, name, str(run.seed), str(place), *row(one)) for place, one in enumerate(layers, 1)]
    headings = ("text", "model", "seed", "layer", "rows", "forget value, first row", "last", "timescale, first row")
    title = f"forget values in chunk {number} of the test text, rows of {group} units"
    return Findings(data, [Table(title, (*headings, "last"), rows, words=2)])


def plain(model: LanguageModel, place: int, found: ForgetMap) -> dict[str, Any]:
    """One layer (counted from 1), for the result file."""
    own = numbers(timescales.of(model)[place - 1]) if is_assigned(model, place) else None
    return {
        "values": rounded(analysis.as_plain(found.values), 4),
        "units": [len(units) for units in found.units],
        "forget": rounded(analysis.as_plain(found.means)),
        "assigned": None if own is None else rounded([float(own[units].mean()) for units in found.units]),
        "assigned_median": None if own is None else rounded([float(numpy.median(own[units])) for units in found.units]),
    }


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """Table row of one layer of one model."""
    forget, assigned = found["forget"], found["assigned"]
    ends = ("-", "-") if assigned is None else (steps(assigned[0]), steps(assigned[-1]))
    return str(len(forget)), f"{forget[0]:.3f}", f"{forget[-1]:.3f}", *ends
