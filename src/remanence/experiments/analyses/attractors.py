"""Texts whose state a language model never forgets: two runs from different initial states never meet."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ... import analysis
from ...models import SequenceModel
from ...table import Table, mean_and_std
from ...tasks import Text
from .trained import Findings, Trained, by_need_and_model, keep

STARTS = {"zeros": "zeros", "others": "another text's state"}
"""States at the restart, by their name in `analysis.attractors`."""


def attractors(
    runs: Sequence[Trained],
    *,
    sequences: int = 2000,
    warm: int = 300,
    listened: int = 1000,
    every: int = 25,
    at_once: int = 500,
) -> Findings:
    """Run chunks of the validation text from their beginning and from a restart: do the two runs meet?

    Args:
        runs: runs on a `Text` task.
        sequences: number of chunks, evenly spaced over the text.
        warm: symbols before the restart.
        listened: symbols after it.
        every: symbols between two comparisons; bits are measured over the last quarter.
        at_once: chunks per batch.
    """
    data: dict[str, Any] = {}
    for run in runs:
        model = run.model()
        chunks = texts(run, sequences, warm + listened)
        keep(data, run, {start: from_start(model, chunks, start, warm, every, at_once) for start in STARTS})
    tables = []
    for need, models in by_need_and_model(runs).items():
        own = {name: [data[need][name][str(run.seed)] for run in group] for name, group in models.items()}
        tables.append(table(f"{need}, {sequences} texts, two runs of each, {listened} symbols after the restart", own))
    return Findings(data, tables)


def texts(run: Trained, count: int, length: int) -> Tensor:
    """Chunks of the validation text with the symbol that follows, `(length + 1, count)`."""
    task = run.task
    if not isinstance(task, Text):
        raise ValueError(f"expected runs on a text, got {task.name} in {run.directory}")
    tokens: Tensor = task.source("validation", run.seed, run.device).stream.tokens  # type: ignore[attr-defined]
    last = len(tokens) - length - 1
    if last < 0:
        raise ValueError(f"expected a validation text of more than {length} symbols, got {len(tokens)}")
    begins = torch.linspace(0, last, count, dtype=torch.float64).round().long().to(tokens.device)
    return tokens[begins + torch.arange(length + 1, device=tokens.device).unsqueeze(1)].long()


def from_start(model: SequenceModel, chunks: Tensor, start: str, warm: int, every: int, at_once: int) -> dict[str, Any]:
    """Run all chunks from their beginning, and again from a restart; "locked" are those whose runs never meet."""
    parts = torch.split(chunks, at_once, 1)
    parts = parts if len(parts) < 2 or parts[-1].shape[1] > 1 else (*parts[:-2], torch.cat(parts[-2:], 1))
    found = [analysis.attractors(model, part[:-1], warm=warm, start=start, every=every) for part in parts]  # type: ignore[arg-type]
    counts = [one.distance.shape[1] for one in found]
    locked = [
        before + int(at) for before, one in zip(accumulate(counts, initial=0), found, strict=False) for at in one.locked
    ]
    apart = sum(one.apart * count for one, count in zip(found, counts, strict=True)) / sum(counts)
    bits = torch.cat([bits_of(model, part[warm:]) for part in parts]) if start == "zeros" else torch.zeros(0)
    is_locked = torch.zeros(len(bits), dtype=torch.bool)
    is_locked[locked if len(bits) else []] = True
    return {
        "steps": found[0].steps.tolist(),
        "apart": apart.tolist(),
        "locked": len(locked),
        "sequences": sum(counts),
        "bits_of_locked": _mean(bits[is_locked].tolist()),
        "bits_of_others": _mean(bits[~is_locked].tolist()),
    }


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


@torch.no_grad()
def bits_of(model: SequenceModel, chunks: Tensor) -> Tensor:
    """Bits per symbol over the last quarter of every chunk, from a zero state, `(B,)`."""
    outputs, _ = model.eval()(chunks[:-1])
    late = 3 * len(outputs) // 4
    losses = torch.nn.functional.cross_entropy(outputs[late:].transpose(1, 2), chunks[late + 1 :], reduction="none")
    return losses.double().mean(0).cpu() / math.log(2)


def table(title: str, found: dict[str, list[dict[str, Any]]]) -> Table:
    """One row per model."""

    def shares(own: list[dict[str, Any]], start: str) -> list[float]:
        return [100 * one[start]["locked"] / one[start]["sequences"] for one in own]

    def bits(own: list[dict[str, Any]], name: str) -> str:
        there = [one["zeros"][name] for one in own if one["zeros"][name] is not None]
        return mean_and_std(there, 2) if there else "-"

    rows = [
        (
            name,
            str(len(own)),
            *(mean_and_std(shares(own, start), 2) for start in STARTS),
            "  ".join(f"{share:.2f}" for share in shares(own, "zeros")),
            bits(own, "bits_of_locked"),
            bits(own, "bits_of_others"),
        )
        for name, own in found.items()
    ]
    apart = [f"never meet after a restart from {words}, %" for words in STARTS.values()]
    bits_of = ("bits of these restarts (zeros)", "bits of the others")
    return Table(title, ("model", "seeds", *apart, "single runs (zeros)", *bits_of), rows)
