"""Timescales that were set, against those that forget values show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import analysis
from ...analysis.groups import timescales_of
from ...table import Table
from .forget_values import estimated_timescales
from .trained import Findings, Trained, in_order, keep
from .words import corpus_of, language_model, rounded, text_of
from .words import layer as layer_of


def assigned_vs_estimated(
    runs: Sequence[Trained], *, layer: int = 2, length: int | None = None, chunk: int = 70
) -> Findings:
    """Timescales of the units of a layer from its biases and from forget values on the test text.

    The data, by need, model and seed, with H units in their order, which is that of assigned timescales, long to short:

        layer        counted from one
        assigned     H numbers
        estimated    H numbers
        spearman     correlation of ranks
        log_pearson  correlation of logarithms
        left_out     units without a logarithm

    Args:
        runs: models of words.
        layer: counted from one at the input.
        length: only the first so many words of the test text; None for all.
        chunk: words run at a time.
    """
    data: dict[str, Any] = {}
    rows = []
    for run in in_order(runs):
        model = language_model(run)
        estimated = estimated_timescales(model, text_of(corpus_of(run), "test", length), chunk=chunk)
        assigned = timescales_of(layer_of(model, layer))
        found = analysis.assigned_against_estimated(assigned, estimated[layer - 1])
        keep(data, run, {"layer": layer, **rounded(found.plain())})
        numbers = f"{found.spearman:.3f}", f"{found.log_pearson:.3f}", str(found.left_out)
        rows.append((run.need, run.model_name, str(run.seed), str(len(assigned)), *numbers))
    headings = ("text", "model", "seed", "units", "Spearman", "Pearson of logarithms", "units without logarithm")
    return Findings(data, [Table(f"assigned against estimated timescales, layer {layer}", headings, rows, words=2)])
