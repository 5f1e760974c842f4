"""Timescales of a language model from its forget values on a text, without going step by step where that is possible.

The forget value of a gate without carried state depends only on the input and the previous hidden state:

    f_t = phi(W x_t + R h_{t-1} + b)

Engines return h for all steps, so all f take one matmul. Other layers (a power law, which carries its age, and cells
other than the LSTM) are watched on the loop engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from .. import timescales
from ..cells import LSTMCell
from ..cells.base import affine
from ..models.language import LanguageModel
from ..models.modes import evaluating
from ..models.text import Text, tokens_of
from ..nn.recurrent import Recurrent
from ..timescales.measured import Measurable
from .opened import Record


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
    with evaluating(model):
        pieces: Any = ((records, None) for records in forget_values(model, chunks))
        return timescales.estimate(Recorded(model), pieces)


def forget_values(model: LanguageModel, chunks: Iterable[Tensor]) -> Iterator[list[Record]]:
    """Forget values on consecutive chunks of a text, with the state carried from one to the next.

    Args:
        model: in evaluation mode.
        chunks: token ids, `(T, B)` each, on the device of the model.

    Yields:
        For every layer, `forget` and `complement` (1 - forget), `(T, B, H)` each, possibly among other gates.
    """
    at_once = all(isinstance(layer, Recurrent) and follows_from_hidden(layer) for layer in model.layers)
    state: Any = None
    for tokens in chunks:
        if at_once:
            records, state = _at_once(model, tokens, state)
        else:
            records, state, _ = model.watch(tokens, state)
        yield records


def follows_from_hidden(layer: Recurrent) -> bool:
    """Whether the forget values of a layer can be computed from its inputs and hidden states."""
    cell = layer.cell
    return isinstance(cell, LSTMCell) and not cell.gate.carries and not layer.proj_size


class Recorded:
    """Stands in for the layer that `timescales.estimate` would run, where the records are already known.

    Args:
        layer: the layer or model of the records.
        lengths: `(B,)`; None if all sequences have T steps.
    """

    training = False

    def __init__(self, layer: Measurable, lengths: Tensor | None = None) -> None:
        self.gate = layer.gate
        self.forget_biases = layer.forget_biases
        self.lengths = lengths

    def watch(self, input: Any, state: Any = None, dt: Any = None) -> tuple[list[Record], Any, Tensor | None]:
        return input, None, self.lengths

    def train(self, mode: bool = True) -> None:
        """Do nothing: the model does not run again."""


def _at_once(model: LanguageModel, tokens: Tensor, state: tuple[Any, ...] | None) -> tuple[list[Record], Any]:
    """Forget values of all layers on a chunk, and the state after it."""
    records, after = [], []
    values = model.embedding(tokens, model.decoder.bias.dtype)
    for layer, before in zip(model.layers, state or [None] * len(model.layers), strict=True):
        output, own = layer(values, before)
        records.append(_of_layer(layer, values, before, output))  # type: ignore[arg-type]
        after.append(own)
        values = output
    return records, tuple(after)


def _of_layer(layer: Recurrent, inputs: Tensor, before: Any, output: Tensor) -> Record:
    """Forget values of one layer from its inputs and outputs.

    Args:
        layer: an LSTM.
        inputs: `(T, B, I)`.
        before: its initial state, or None for zeros.
        output: hidden states `(T, B, H)`.
    """
    cell = layer.cell
    assert isinstance(cell, LSTMCell)
    weights = layer._weights(layer.places[0], output.dtype)
    first = output.new_zeros(1, *output.shape[1:]) if before is None else before[0].to(output.dtype)
    recurrent = affine(torch.cat((first, output[:-1])), weights["weight_hh"], weights.get("bias_hh"))
    forgetting = cell.forgetting(cell.rows(cell.project(inputs, weights) + recurrent), (), weights, None)
    return {"forget": forgetting.forget, "complement": forgetting.complement}
