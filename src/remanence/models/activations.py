"""What the units of a language model hold at every word, by their timescale."""

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


def layers_reading(
    model: Measurable, chunks: Sequence[Tensor], state: Any, timescales: Sequence[Tensor] | None
) -> tuple[tuple[LayerActivations, ...], Any]:
    """What the layers of a language model hold while it reads a text.

    Args:
        model: the model, in evaluation mode.
        chunks: the numbers of the words, `(T, 1)` each, on the device of the model.
        state: state to start from; zeros if None.
        timescales: what to sort by, see `LanguageModel.activations`.

    Returns:
        The layers, first layer first, and the state after the last word.
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
