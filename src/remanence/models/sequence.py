"""A recurrent layer with a linear read-out: the model of every experiment that is not a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..engines.side_by_side import rejoined
from ..nn.recurrent import Recurrent
from ..nn.together import together
from .read_out import read_out


class SequenceModel(nn.Module):
    """Embedding, if inputs are symbols; recurrent layer, dropout, linear read-out.

    Args:
        layer: the recurrent layer, without batch_first.
        outputs: width of the read-out O.
        readout: "every" for outputs at every step, "last" for one after the last step of a sequence.
        dropout: probability of dropping an output of the layer before the read-out.
        symbols: number of symbols, where inputs are symbols: each gets a vector of its own, as wide as the layer's
            input. None where inputs are vectors already.
    """

    def __init__(
        self,
        layer: Recurrent,
        outputs: int,
        *,
        readout: Literal["every", "last"] = "every",
        dropout: float = 0.0,
        symbols: int | None = None,
    ) -> None:
        super().__init__()
        if layer.batch_first:
            raise ValueError("expected a layer with batch_first=False, got batch_first=True")
        if readout not in ("every", "last"):
            raise ValueError(f"expected readout to be 'every' or 'last', got {readout!r}")
        self.layer = layer
        self.readout = readout
        self.dropout = nn.Dropout(dropout)
        width = layer.output_size * (1 + layer.bidirectional)
        weight = next(layer.parameters())
        self.embedding = None
        if symbols is not None:
            self.embedding = nn.Embedding(symbols, layer.input_size, device=weight.device, dtype=weight.dtype)
        self.head = nn.Linear(width, outputs, device=weight.device, dtype=weight.dtype)

    def forward(
        self, inputs: Tensor, lengths: Tensor | None = None, dt: Tensor | None = None, state: Any = None
    ) -> tuple[Tensor, Any]:
        """Run over sequences.

        Args:
            inputs: `(T, B, I)`, padded at the end; `(T, B)` whole numbers where inputs are symbols.
            lengths: `(B,)` steps of every sequence, None where all have T.
            dt: `(T, B)` times between steps.
            state: state to start from.

        Returns:
            `(T, B, O)`, or `(B, O)` for the read-out after the last step, and the state after step T.
        """
        hidden, state = self.layer(self.embedded(inputs), state, dt)
        if self.readout == "last":
            hidden = last(hidden, lengths)
        return self.head(self.dropout(hidden)), state

    def embedded(self, inputs: Tensor) -> Tensor:
        """Vectors for the layer."""
        if self.embedding is None:
            return inputs
        vectors: Tensor = self.embedding(inputs)
        return vectors


def forward_together(
    models: Sequence[SequenceModel],
    inputs: Tensor,
    lengths: Tensor | None = None,
    dt: Tensor | None = None,
    states: Sequence[Any] | None = None,
) -> tuple[Tensor, list[Any]]:
    """Run models that differ in their weights alone side by side: `forward` with R in front of every shape.

    Returns:
        `(R, T, B, O)` or `(R, B, O)`, and the state of every model.
    """
    if len(models) == 1:
        times, steps = (None if value is None else value[0] for value in (dt, lengths))
        outputs, state = models[0](inputs[0], steps, times, None if states is None else states[0])
        return outputs.unsqueeze(0), [state]
    layers = [model.layer for model in models]
    vectors = [model.embedded(given) for model, given in zip(models, inputs, strict=True)]
    results = together(layers, vectors, states, None if dt is None else list(dt))
    first = models[0]
    if first.readout == "last":
        rows = [None] * len(models) if lengths is None else list(lengths)
        hidden = torch.stack([last(output, row) for (output, _), row in zip(results, rows, strict=True)])
    else:
        hidden = rejoined([output for output, _ in results])
    if first.dropout.p > 0:
        hidden = torch.stack([model.dropout(part) for model, part in zip(models, hidden, strict=True)])
    heads = [model.head for model in models]
    outputs = read_out(hidden, [head.weight for head in heads], [head.bias for head in heads])
    return outputs, [state for _, state in results]


def last(hidden: Tensor, lengths: Tensor | None) -> Tensor:
    """The hidden state after the last step of every sequence, `(B, H)`. What comes after it has no influence."""
    if lengths is None:
        return hidden[-1]
    return hidden[lengths - 1, torch.arange(hidden.shape[1], device=hidden.device)]
