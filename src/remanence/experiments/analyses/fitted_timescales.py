"""How the timescales that language models have learned are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ... import analysis
from ...table import Table
from .forget_values import estimated_timescales
from .trained import Findings, Trained, in_order, keep
from .words import corpus_of, language_model, median, rounded, text_of


def fitted_timescales(runs: Sequence[Trained], *, length: int | None = None, chunk: int = 70) -> Findings:
    """Timescales of all units of all layers from forget values on the test text, and distributions fitted to them.

    The data, by need, model and seed, with n units in all layers:

        timescales      n numbers, long to short
        range           the shortest and the longest
        below_10        share of units below ten words
        better          family with the smaller statistic, "inverse gamma" or "gaussian"
        inverse_gamma   {family, parameter, grid (A), statistics (A), best, statistic, quantiles (n), long to short}:
                        quantiles are the curve to draw beside timescales
        gaussian        the same
        layers          for every layer {units, below_10, median, longest}

    Args:
        runs: models of words.
        length: only the first so many words of the test text; None for all.
        chunk: words run at a time.
    """
    data: dict[str, Any] = {}
    rows = []
    for run in in_order(runs):
        own = estimated_timescales(language_model(run), text_of(corpus_of(run), "test", length), chunk=chunk)
        fits = analysis.timescale_fits(own)
        keep(data, run, plain(fits, own))
        rows.append((run.need, run.model_name, str(run.seed), *row(fits)))
    headings = (
        *("text", "model", "seed", "units", "shortest", "longest", "below 10, %"),
        *("best alpha", "KS", "best mu", "KS", "nearer"),
    )
    title = "timescales in words from forget values on the test text, inverse gamma (alpha) and Gaussian (mu) fitted"
    return Findings(data, [Table(title, headings, rows, words=2, text=1)])


def plain(fits: analysis.TimescaleFits, layers: Sequence[Tensor]) -> dict[str, Any]:
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


def row(fits: analysis.TimescaleFits) -> tuple[str, ...]:
    """One model."""
    gamma, gaussian = fits.inverse_gamma, fits.gaussian
    return (
        str(len(fits.timescales)),
        f"{fits.timescales[-1]:.2f}",
        f"{fits.timescales[0]:.1f}",
        f"{100 * fits.below_10:.1f}",
        *(f"{gamma.best:.2f}", f"{gamma.statistic:.3f}"),
        *(f"{gaussian.best:.2f}", f"{gaussian.statistic:.3f}"),
        fits.better,
    )
