"""Timescales of the units of language models, estimated from their forget values on a long text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ... import analysis
from ...analysis.groups import timescales_of
from ...table import Table
from .trained import Findings, Trained, by_run, in_order, keep, number
from .words import corpus_of, language_model, median, rounded, text_of
from .words import layer as layer_of


def assigned_vs_estimated(
    runs: Sequence[Trained], *, layer: int = 2, length: int | None = None, chunk: int = 70
) -> Findings:
    """Timescales of the units of a layer from its biases and from forget values on the test text.

    The data, by need, model and seed, with H units in the order of their assigned timescales, long to short:

        layer        number of the layer, from 1
        assigned     H values
        estimated    H values
        spearman     rank correlation
        log_pearson  Pearson correlation of the logarithms
        left_out     number of units without a finite logarithm

    Args:
        runs: word-level language models.
        layer: number of the layer, from 1 at the input.
        length: use only the first `length` words of the test text; None for all.
        chunk: words per forward pass.
    """
    data: dict[str, Any] = {}
    for run in in_order(runs):
        model = language_model(run)
        estimated = analysis.estimated_timescales(model, text_of(corpus_of(run), "test", length), chunk=chunk)
        assigned = timescales_of(layer_of(model, layer))
        found = analysis.assigned_against_estimated(assigned, estimated[layer - 1])
        keep(data, run, {"layer": layer, **rounded(found.plain())})
    return Findings(data, assigned_tables(data))


def assigned_tables(data: Mapping[str, Any]) -> list[Table]:
    """One row per run."""
    rows, layer = [], None
    for *names, found in by_run(data):
        layer = found["layer"]
        numbers = f"{number(found['spearman']):.3f}", f"{number(found['log_pearson']):.3f}", str(found["left_out"])
        rows.append((*names, str(len(found["assigned"])), *numbers))
    headings = ("text", "model", "seed", "units", "Spearman", "Pearson of logarithms", "units without logarithm")
    return [Table(f"assigned against estimated timescales, layer {layer}", headings, rows, words=2)]


def fitted_timescales(runs: Sequence[Trained], *, length: int | None = None, chunk: int = 70) -> Findings:
    """Timescales of all units from forget values on the test text, and distributions fitted to them.

    The data, by need, model and seed, with n units in all layers:

        timescales      n values, long to short
        range           the shortest and the longest
        below_10        fraction of units below ten words
        better          family with the smaller KS statistic, "inverse gamma" or "gaussian"
        inverse_gamma   {family, parameter, grid (A), statistics (A), best, statistic, quantiles (n), long to short}:
                        quantiles are the curve to draw next to the timescales
        gaussian        the same
        layers          per layer {units, below_10, median, longest}

    Args:
        runs: word-level language models.
        length: use only the first `length` words of the test text; None for all.
        chunk: words per forward pass.
    """
    data: dict[str, Any] = {}
    for run in in_order(runs):
        text = text_of(corpus_of(run), "test", length)
        own = [layer.cpu() for layer in analysis.estimated_timescales(language_model(run), text, chunk=chunk)]
        keep(data, run, plain_fits(analysis.timescale_fits(own), own))
    return Findings(data, fits_tables(data))


def fits_tables(data: Mapping[str, Any]) -> list[Table]:
    """One row per run."""
    rows = [(*names, *fits_row(found)) for *names, found in by_run(data)]
    headings = (
        *("text", "model", "seed", "units", "shortest", "longest", "below 10, %"),
        *("best alpha", "KS", "best mu", "KS", "nearer"),
    )
    title = "timescales in words from forget values on the test text, inverse gamma (alpha) and Gaussian (mu) fitted"
    return [Table(title, headings, rows, words=2, text=1)]


def plain_fits(fits: analysis.TimescaleFits, layers: Sequence[Tensor]) -> dict[str, Any]:
    """For the result file."""
    found: dict[str, Any] = {
        **fits.plain(),
        "range": analysis.as_plain([fits.timescales[-1], fits.timescales[0]]),
        "layers": [
            {
                "units": len(own),
                "below_10": float((own < 10).double().mean()),
                "median": median(own),
                "longest": float(torch.amax(own)),
            }
            for own in layers
        ],
    }
    whole: dict[str, Any] = rounded(analysis.as_plain(found))
    return whole


def fits_row(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Table row of one model."""
    own, gamma, gaussian = found["timescales"], found["inverse_gamma"], found["gaussian"]
    return (
        str(len(own)),
        f"{number(own[-1]):.2f}",
        f"{number(own[0]):.1f}",
        f"{100 * found['below_10']:.1f}",
        *(f"{number(gamma['best']):.2f}", f"{number(gamma['statistic']):.3f}"),
        *(f"{number(gaussian['best']):.2f}", f"{number(gaussian['statistic']):.3f}"),
        found["better"],
    )
