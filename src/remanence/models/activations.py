"""Activations of the units of a language model at every word, sorted by timescale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..timescales import estimate, of
from ..timescales.measured import Measurable


@dataclass(frozen=True)
class LayerActivations:
    """Activations of one layer, with units sorted from the shortest timescale to the longest, on the CPU."""

    hidden: Tensor
    """Hidden states after every word, `(N, H)`."""
    cell: Tensor
    """Cell states after every word, `(N, H)`; equal to the hidden states for GRU and JANET."""
    timescales: Tensor
    """Timescale of every unit in words, float64 `(H,)`, ascending."""
    units: Tensor
    """Index of the unit in the layer, int64 `(H,)`: `hidden[:, k]` belongs to unit `units[k]`."""


@dataclass(frozen=True)
class Activations:
    """Activations of a language model on a text, as returned by `LanguageModel.activations`."""

    tokens: Tensor
    """Token ids, int64 `(N,)`."""
    words: list[str] | None
    """The words, or None if the model has no vocabulary."""
    layers: tuple[LayerActivations, ...]
    """The layers, first to last."""
    state: tuple[Any, ...]
    """State after the last word; pass it to continue with the text."""


def layers_reading(
    model: Measurable, chunks: Sequence[Tensor], state: Any, timescales: Sequence[Tensor] | None
) -> tuple[tuple[LayerActivations, ...], Any]:
    """Activations of the layers of a language model on a text.

    Args:
        model: The model, in evaluation mode.
        chunks: Token ids, `(T, 1)` each, on the device of the model.
        state: Initial state; zeros if None.
        timescales: Timescales to sort by, see `LanguageModel.activations`.

    Returns:
        The layers, first to last, and the state after the last word.
    """
    if timescales is None:
        timescales = _own_timescales(model, chunks)
    seen: list[list[tuple[Tensor, Tensor]]] = []
    for part in chunks:
        records, state, _ = model.watch(part, state)
        seen.append([(record["hidden"][:, 0].cpu(), record["cell"][:, 0].cpu()) for record in records])
    by_layer = list(zip(*seen, strict=True))
    if len(timescales) != len(by_layer):
        raise ValueError(f"expected timescales of {len(by_layer)} layers, got {len(timescales)}")
    return tuple(_sorted(kept, own) for kept, own in zip(by_layer, timescales, strict=True)), state


def _own_timescales(model: Measurable, chunks: Sequence[Tensor]) -> list[Tensor]:
    """Timescales from the biases if the gate defines them, else from the forget values on this text."""
    gate = model.gate  # raises for a layer without one
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
