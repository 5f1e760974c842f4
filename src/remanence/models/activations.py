"""What the units of a language model hold at every word, by their timescale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..timescales import estimate, of
from .modes import evaluating
from .text import words_of

if TYPE_CHECKING:
    from .language import LanguageModel


@dataclass(frozen=True)
class LayerActivations:
    """One layer, its units sorted from the shortest timescale to the longest. All tensors are on the CPU."""

    hidden: Tensor
    """Hidden states `(N, H)` after every word."""
    cell: Tensor
    """Cell states `(N, H)`; of a GRU and of JANET, the hidden states once more."""
    timescales: Tensor
    """Timescale of every unit in words, float64 `(H,)`, rising."""
    units: Tensor
    """The unit's number in the layer, int64 `(H,)`: `hidden[:, k]` is that of unit `units[k]`."""


@dataclass(frozen=True)
class Activations:
    """A text as a model reads it."""

    tokens: Tensor
    """Numbers of the words, int64 `(N,)`."""
    words: list[str] | None
    """The words, where the model has a vocabulary."""
    layers: tuple[LayerActivations, ...]
    """First layer first."""
    state: tuple[Any, ...]
    """State after the last word: give it to go on with the text."""


def activations(
    model: LanguageModel,
    tokens: Tensor,
    state: tuple[Any, ...] | None,
    timescales: Sequence[Tensor] | None,
    chunk: int,
) -> Activations:
    """See `LanguageModel.activations`; tokens are `(N,)`."""
    columns = tokens.unsqueeze(1).to(model.device)
    chunks = [columns[start : start + chunk] for start in range(0, len(columns), chunk)]
    with evaluating(model):
        if timescales is None:
            timescales = _own_timescales(model, chunks)
        seen: list[list[tuple[Tensor, Tensor]]] = [[] for _ in model.layers]
        for part in chunks:
            records, state, _ = model.watch(part, state)
            for kept, record in zip(seen, records, strict=True):
                kept.append((record["hidden"][:, 0].cpu(), record["cell"][:, 0].cpu()))
    if len(timescales) != len(seen):
        raise ValueError(f"expected timescales of {len(seen)} layers, got {len(timescales)}")
    layers = tuple(_sorted(kept, own) for kept, own in zip(seen, timescales, strict=True))
    words = None if model.vocabulary is None else words_of(tokens.tolist(), model.vocabulary)
    assert state is not None
    return Activations(tokens, words, layers, state)


def _own_timescales(model: LanguageModel, chunks: Sequence[Tensor]) -> list[Tensor]:
    """From the biases where they say it, else from the forget values on this text."""
    gate = model.gate  # a layer without one says so
    try:
        gate.bias(torch.zeros(1, dtype=torch.float64, device="cpu"))
    except ValueError:
        return estimate(model, chunks, carry_state=True)
    return of(model)


def _sorted(kept: Sequence[tuple[Tensor, Tensor]], timescales: Tensor) -> LayerActivations:
    hidden, cell = (torch.cat(parts) for parts in zip(*kept, strict=True))
    timescales = timescales.detach().to("cpu", torch.float64)
    if timescales.shape != hidden.shape[1:]:
        raise ValueError(f"expected {hidden.shape[1]} timescales, one per unit, got shape {tuple(timescales.shape)}")
    rising, units = timescales.sort(stable=True)
    return LayerActivations(hidden[:, units], cell[:, units], rising, units)
