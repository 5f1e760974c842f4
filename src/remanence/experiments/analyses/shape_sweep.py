"""Perplexity over the shape of the inverse gamma distribution of assigned timescales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import timescales
from ...models import LanguageModel
from ...table import Table
from ...timescales import InverseGamma
from .perplexities import best, cells, of_runs
from .trained import Findings, Trained
from .words import corpus_of, language_model, layer, rounded, steps


def shape_sweep(runs: Sequence[Trained], *, layer: int = 2) -> Findings:
    """Perplexity of models by the shape of the timescales of a layer. Validation decides, test is reported.

    The shape is read from the models, so that they may have any names. The data, by corpus:

        layer    counted from one
        best     the shape with the lowest mean perplexity in validation
        shapes   list, by rising shape, of {alpha, model: its name, timescales: assigned, long to short, (H),
                 validation: by seed, validation_mean, test: by seed, test_mean}

    Args:
        runs: models of words with inverse gamma timescales in that layer; others are refused.
        layer: counted from one at the input.
    """
    groups: dict[str, dict[float, list[Trained]]] = {}
    assigned: dict[tuple[str, float], list[float]] = {}
    for run in runs:
        corpus, model = corpus_of(run).name, language_model(run)
        alpha = shape_of(run, model, layer)
        groups.setdefault(corpus, {}).setdefault(alpha, []).append(run)
        own = timescales.of(model)[layer - 1].sort(descending=True).values
        assigned.setdefault((corpus, alpha), rounded(own.tolist()))
    data: dict[str, Any] = {}
    tables = []
    for corpus, shapes in groups.items():
        found = {alpha: of_runs(shapes[alpha]) for alpha in sorted(shapes)}
        decided = best(found)
        data[corpus] = {
            "layer": layer,
            "best": decided,
            "shapes": [
                {
                    "alpha": alpha,
                    "model": shapes[alpha][0].model_name,
                    "timescales": assigned[corpus, alpha],
                    **one,
                }
                for alpha, one in found.items()
            ],
        }
        rows = [
            (f"{alpha:g}", steps(assigned[corpus, alpha][0]), *cells(one), "best" if alpha == decided else "")
            for alpha, one in found.items()
        ]
        headings = ("alpha", "longest timescale", "seeds", "validation", "test", "")
        title = f"perplexity by shape of the timescales of layer {layer}, {corpus}; validation decides"
        tables.append(Table(title, headings, rows, words=0, text=1))
    return Findings(data, tables)


def shape_of(run: Trained, model: LanguageModel, number: int) -> float:
    """The shape of the timescales that a layer was given."""
    given = layer(model, number).timescales[0]
    if not isinstance(given, InverseGamma):
        raise ValueError(f"expected inverse gamma timescales in layer {number} of {run.model_name!r}, got {given!r}")
    return float(given.alpha)
