"""Stacked recurrent layers of different widths, each a separate module."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn

from ..gates import Gate
from ..names import lookup
from ..nn import GRU, JANET, LSTM, NRU, Recurrent
from ..nn.biases import per_layer
from ..nn.expect import expect_size
from ..timescales import Fixed, Timescales

KNOWN: dict[str, Callable[..., Recurrent]] = {"lstm": LSTM, "gru": GRU, "janet": JANET, "nru": NRU}
"""Types of layers."""
StartingBias = float | Literal["matched", "uniform"] | None


def sizes(hidden_size: int | Sequence[int], num_layers: int, embedding_size: int | None, tie: bool) -> list[int]:
    """Number of units of every layer. With a tied softmax the last layer must have embedding_size units."""
    expect_size("num_layers", num_layers)
    if embedding_size is not None:
        expect_size("embedding_size", embedding_size)
    if tie and embedding_size is None:
        raise ValueError("expected tie=False with one-hot words, which have no embedding matrix to share, got tie=True")
    if isinstance(hidden_size, Sequence):
        units = [expect_size("hidden_size", size) for size in hidden_size]
        if len(units) != num_layers:
            raise ValueError(f"expected hidden_size for {num_layers} layers, got {len(units)}")
    else:
        units = [expect_size("hidden_size", hidden_size)] * num_layers
        if tie and embedding_size is not None:
            units[-1] = embedding_size
    if tie and units[-1] != embedding_size:
        raise ValueError(
            f"expected the last layer to have {embedding_size} units, the embedding_size, got {units[-1]}; "
            "pass tie=False for a softmax with its own weights"
        )
    return units


def spread(
    timescales: Timescales | Sequence[Timescales | None] | None, units: Sequence[int]
) -> tuple[Timescales | None, ...]:
    """One entry per layer. A `Fixed` for all layers is split, because every layer is a separate module."""
    if not isinstance(timescales, Fixed):
        return per_layer(timescales, len(units))
    given = [timescales.timescales(size, n, len(units)) for n, size in enumerate(units)]
    return tuple(None if values is None else Fixed(values.tolist(), freeze=timescales.freeze) for values in given)


def make_layers(
    widths: Sequence[int],
    *,
    layer: str,
    gate: str | Gate,
    input_gate: str | None,
    forget_bias: StartingBias,
    timescales: Sequence[Timescales | None],
    frozen_recurrent: bool,
    **keywords: Any,
) -> nn.ModuleList:
    """Make the layers, one from each width to the next; see `LanguageModel` for the arguments."""
    maker = lookup("layer", layer, KNOWN)
    if layer != "lstm" and input_gate is not None:
        raise ValueError(f"expected input_gate with layer 'lstm' only, got it with {layer!r}")
    if layer == "nru" and (gate != "sigmoid" or forget_bias is not None or any(timescales)):
        raise ValueError("expected no gate, forget_bias or timescales with layer 'nru', which has no gate, got one")
    if layer == "lstm":
        keywords["input_gate"] = input_gate
    layers = nn.ModuleList()
    for n, own in enumerate(timescales):
        if layer != "nru":
            bias = None if own is not None or forget_bias == "uniform" else forget_bias
            keywords.update(gate=gate, timescales=own, forget_bias=bias)
        made = maker(widths[n], widths[n + 1], **keywords)
        if own is None and forget_bias == "uniform":
            draw_biases(made)
        for name, parameter in made.named_parameters():
            parameter.requires_grad_(not (frozen_recurrent and name.startswith("weight_hh")))
        layers.append(made)
    return layers


@torch.no_grad()
def draw_biases(layer: Recurrent) -> None:
    """Draw all biases from U(-1/sqrt(H), 1/sqrt(H)) as torch does, instead of the initialisation of the gate."""
    bound = 1 / math.sqrt(layer.hidden_size)
    for name, parameter in layer.named_parameters():
        if name.startswith("bias"):
            parameter.uniform_(-bound, bound)
