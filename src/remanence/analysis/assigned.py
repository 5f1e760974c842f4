"""Assigned timescales compared with those estimated on a text (figure 4 of the multi-timescale paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
from torch import Tensor

from .. import timescales
from ..models.language import LanguageModel
from ..models.text import Text, tokens_of
from .arrays import Numbers, numbers
from .plain import Result


@dataclass(frozen=True, eq=False)
class AssignedEstimated(Result):
    """Timescales of the units of a layer from its biases, and from its forget values on a text."""

    assigned: Numbers
    """In the order of the units, `(H,)`."""
    estimated: Numbers
    """`(H,)`."""
    spearman: float
    """Rank correlation."""
    log_pearson: float
    """Pearson correlation of the logarithms."""
    left_out: int
    """Units with a timescale of zero or infinity, which has no finite logarithm; they count in the ranks only."""


def assigned_against_estimated(assigned: Any, estimated: Any) -> AssignedEstimated:
    """Correlate assigned and estimated timescales.

    Args:
        assigned: `(H,)`, such as an entry of `remanence.timescales.of(layer)`.
        estimated: `(H,)`, the same entry of `remanence.timescales.estimate(layer, batches)` or `estimated_timescales`.
    """
    from scipy.stats import rankdata

    given, found = numbers(assigned), numbers(estimated)
    if given.ndim != 1 or given.shape != found.shape or len(given) < 2:
        raise ValueError(
            f"expected assigned and estimated timescales of at least two units, got {given.shape} and {found.shape}"
        )
    pairs = numpy.stack((given, found))
    if numpy.isnan(pairs).any() or (pairs < 0).any():
        raise ValueError("expected timescales of zero or more, got a negative one or NaN")
    usable = (numpy.isfinite(pairs) & (pairs > 0)).all(0)
    return AssignedEstimated(
        assigned=given,
        estimated=found,
        spearman=_correlation(*rankdata(pairs, axis=1)),
        log_pearson=_correlation(*numpy.log(pairs[:, usable])),
        left_out=int((~usable).sum()),
    )


def estimated_timescales(model: LanguageModel, stream: Text, *, chunk: int = 70) -> list[Tensor]:
    """Timescale of every unit from its mean forget value on a text, one float64 `(H,)` tensor per layer.

    The text is read as one sequence from zero state: the chunk length affects only memory use.

    Args:
        model: a language model.
        stream: a text, its words or their token ids `(N,)`.
        chunk: words run at a time.
    """
    if chunk < 1:
        raise ValueError(f"expected chunks of at least one word, got {chunk}")
    tokens = tokens_of(stream, model.words, model.vocabulary).to(model.device).unsqueeze(1)
    chunks = (tokens[start : start + chunk] for start in range(0, len(tokens), chunk))
    return timescales.estimate(model, chunks, carry_state=True)


def _correlation(one: Numbers, two: Numbers) -> float:
    """Pearson's correlation; NaN if one of them is constant."""
    if len(one) < 2 or numpy.ptp(one) == 0 or numpy.ptp(two) == 0:
        return float("nan")
    return float(numpy.corrcoef(one, two)[0, 1])
