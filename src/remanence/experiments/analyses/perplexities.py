"""Perplexities that finished runs report: what sweeps over models compare."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ...table import mean_and_std
from .trained import Trained


def perplexity(scores: Mapping[str, Any] | None) -> float | None:
    """From the scores of a split."""
    if not scores:
        return None
    value = scores.get("perplexity")
    if value is None and scores.get("loss") is not None:
        value = math.exp(min(scores["loss"], 700.0))  # what is larger is no number
    return None if value is None or not math.isfinite(value) else float(value)


def of_runs(runs: Sequence[Trained]) -> dict[str, Any]:
    """Perplexities of the seeds of one model: {validation, test: by seed; validation_mean, test_mean}."""
    found: dict[str, Any] = {
        split: {str(run.seed): perplexity(run.result.get(part)) for run in runs}
        for split, part in (("validation", "best"), ("test", "test"))
    }
    return found | {f"{split}_mean": mean(found[split].values()) for split in ("validation", "test")}


def mean(values: Any) -> float | None:
    """Of those that are there."""
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else None


def cells(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Number of seeds, validation and test perplexity, for a table."""
    there = [[value for value in found[split].values() if value is not None] for split in ("validation", "test")]
    return str(len(found["validation"])), *(mean_and_std(values, 2) for values in there)


def best(found: Mapping[Any, Mapping[str, Any]]) -> Any:
    """The key with the lowest mean perplexity in validation, None where there is none."""
    there = {key: one["validation_mean"] for key, one in found.items() if one["validation_mean"] is not None}
    return min(there, key=lambda key: there[key]) if there else None
