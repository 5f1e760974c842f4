"""Access to the recurrent layers inside any model, and a way to run them and record their gates.

An analysis of units needs the same for a layer, a model with a read-out and a language model: input vectors go in, and
records of every unit of every layer come out. torch.nn.LSTM and torch.nn.GRU are converted.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from .. import timescales
from ..gates import PowerLaw
from ..models.language import LanguageModel
from ..models.modes import evaluating
from ..models.sequence import SequenceModel
from ..models.text import Text, tokens_of
from ..nn import GRU, LSTM
from ..nn.place import Place
from ..nn.recurrent import Recurrent
from ..tasks.base import Batch, Readout
from .arrays import Numbers, numbers

AnyModel = Recurrent | SequenceModel | LanguageModel | nn.LSTM | nn.GRU
AnyInput = Tensor | PackedSequence | Batch | Text
"""An input of a model: vectors for a layer, vectors or symbols for a model with a read-out, a text for a language
model; or a batch of a task."""
Record = dict[str, Tensor]
State = tuple[Any, ...]
"""The state of every layer, as the layer returns it."""
STEPS = 50
"""Steps recorded at a time: the gates of all layers at these steps are in memory together."""


@dataclass(frozen=True)
class LayerInput:
    """An input as vectors for the first layer."""

    vectors: Tensor
    """`(T, B, I)`, padded at the end."""
    lengths: Tensor | None = None
    """`(B,)` on the CPU; None if all have T steps."""
    dt: Tensor | None = None
    """`(T, B)`."""

    def without_input(self) -> LayerInput:
        """The same lengths with zero input."""
        return replace(self, vectors=torch.zeros_like(self.vectors))


@dataclass(frozen=True)
class Opened:
    """The recurrent layers of a model, each with time first, run one after the other."""

    model: nn.Module
    layers: tuple[Recurrent, ...]

    @property
    def places(self) -> list[tuple[Recurrent, Place]]:
        """Layers and directions in the order of records, as in `remanence.timescales.of`."""
        return [(layer, place) for layer in self.layers for place in layer.places]

    @property
    def names(self) -> list[str]:
        """Names of the places: l0, l0_reverse, l1, ..."""
        if len(self.layers) > 1:
            return [f"l{number}" for number in range(len(self.layers))]
        return [place.suffix.removeprefix("_") for _, place in self.places]

    def timescales(self) -> list[Numbers | None]:
        """Timescales of the biases, `(H,)` place by place; None if the gate has none, such as a power law."""
        found: list[Numbers | None] = []
        for layer in self.layers:
            try:
                found.extend(numbers(own) for own in timescales.of(layer))
            except ValueError:
                layer.gate  # noqa: B018  raises for a layer without a gate
                found.extend(None for _ in layer.places)
        return found

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Evaluation mode without gradients; restores the mode of every module afterwards."""
        with evaluating(nn.ModuleList([self.model, *self.layers])):
            yield

    def layer_input(self, input: AnyInput, dt: Tensor | None = None) -> LayerInput:
        """Convert an input of the model to vectors for its first layer; a single sequence becomes a batch of one.

        Args:
            input: see `AnyInput`.
            dt: time between steps, shaped like the input without its features. A batch of a task has its own.
        """
        if isinstance(self.model, LanguageModel):
            if dt is not None:
                raise ValueError("expected no dt for a language model, whose words come at unit steps, got one")
            return LayerInput(self._word_vectors(self.model, input))
        (layer,) = self.layers
        lengths = mask = None
        if isinstance(input, Batch):
            uses = self.model.takes_dt if isinstance(self.model, SequenceModel) else layer.cell.takes_dt
            dt = input.dt if dt is None and uses else dt
            lengths, mask = input.lengths, input.mask
            input = input.inputs
        elif isinstance(input, PackedSequence):
            input, lengths = pad_packed_sequence(input)
        elif not isinstance(input, Tensor):
            raise TypeError(f"expected the input of a layer or a batch of a task, got {type(input).__name__}")
        elif getattr(self.model, "batch_first", False) and input.dim() == 3:
            input = input.transpose(0, 1)
            dt = dt.T if isinstance(dt, Tensor) and dt.dim() == 2 else dt
        return self._batched(layer, input, lengths, dt, mask)

    def _batched(
        self, layer: Recurrent, values: Tensor, lengths: Tensor | None, dt: Tensor | None, mask: Tensor | None
    ) -> LayerInput:
        weight = next(layer.parameters())
        if isinstance(self.model, SequenceModel):
            values, dt = self._through(self.model, values, dt, mask)
        if values.dim() == 2:
            values = values.unsqueeze(1)
        if values.dim() != 3 or not values.numel() or values.shape[-1] != layer.input_size:
            raise ValueError(
                f"expected sequences of {layer.input_size} features, (T, B, I) or (T, I), got {tuple(values.shape)}"
            )
        if dt is not None:
            dt = dt.to(weight.device)
            dt = (dt.unsqueeze(1) if dt.dim() == 1 else dt).expand(values.shape[:2])
        values = values.to(weight.device, weight.dtype)
        if lengths is None:
            return LayerInput(values, None, dt)
        longest = int(lengths.max())  # a task may pad to a larger length
        return LayerInput(values[:longest], lengths.cpu(), None if dt is None else dt[:longest])

    def _through(
        self, model: SequenceModel, values: Tensor, dt: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The input of the layer of a model with a read-out: vectors, and dt if the layer uses it."""
        weight = model.head.weight
        values = values.to(weight.device) if model.embedding is not None else values.to(weight.device, weight.dtype)
        if values.dim() == (1 if model.embedding is not None else 2):
            values, mask = values.unsqueeze(1), None if mask is None else mask.unsqueeze(1)
        if model.embedding is None and (values.dim() != 3 or values.shape[-1] != model.input_size):
            raise ValueError(
                f"expected sequences of {model.input_size} features, (T, B, I) or (T, I), got {tuple(values.shape)}"
            )
        dt, mask = (None if part is None else part.to(weight.device) for part in (dt, mask))
        with torch.no_grad():
            return model.vectors(values, dt, mask), model.dt_of_layer(dt)

    def _word_vectors(self, model: LanguageModel, text: AnyInput) -> Tensor:
        if isinstance(text, Batch):
            text = text.inputs
        if isinstance(text, Tensor) and text.dim() == 2:
            columns = [tokens_of(column, model.words, model.vocabulary) for column in text.T]
            tokens = torch.stack(columns, 1)
        else:
            tokens = tokens_of(text, model.words, model.vocabulary).unsqueeze(1)
        if not tokens.numel():
            raise ValueError("expected a text of at least one word, got none")
        with self.measuring():
            vectors: Tensor = model.embedding(tokens.to(model.device), model.decoder.bias.dtype)
        return vectors

    def watch(self, drive: LayerInput, state: State | None = None) -> tuple[list[Record], State]:
        """Run on the loop engine and record every gate, `(T, B, H)` each, place by place.

        Args:
            drive: input of the first layer.
            state: initial state, as returned; zeros if None.
        """
        records: list[Record] = []
        after = []
        values: Tensor | PackedSequence = drive.vectors
        if drive.lengths is not None:
            values = pack_padded_sequence(drive.vectors, drive.lengths, enforce_sorted=False)
        for number, layer in enumerate(self.layers):
            own, state_after, _ = layer.watch(values, None if state is None else state[number], drive.dt)
            records.extend(own)
            after.append(state_after)
            values = own[-1]["hidden"].to(drive.vectors.dtype)
        return records, tuple(after)

    def watched(self, drive: LayerInput) -> Iterator[tuple[int, list[Record], State]]:
        """Record in chunks with the state carried, so that not all gates are in memory at once.

        If sequences differ in length or are read backwards there is one chunk.

        Yields:
            The first step of a chunk, its records, and the state after it.
        """
        whole = len(drive.vectors)
        in_one = drive.lengths is not None or any(layer.bidirectional for layer in self.layers)
        size = whole if in_one else STEPS
        state: State | None = None
        for start in range(0, whole, size):
            part = slice(start, start + size)
            dt = None if drive.dt is None else drive.dt[part]
            records, state = self.watch(LayerInput(drive.vectors[part], drive.lengths, dt), state)
            yield start, records, state

    def states(self, state: State) -> list[dict[str, Tensor]]:
        """The parts of a state by name (hidden, cell, age, ...), `(B, width)` each, place by place."""
        found = []
        for layer, own in zip(self.layers, state, strict=True):
            names = list(layer.cell.widths(layer.hidden_size, layer.output_size))
            parts = own if isinstance(own, tuple) else (own,)
            found += [dict(zip(names, place, strict=True)) for place in zip(*parts, strict=True)]
        return found


def opened(model: AnyModel) -> Opened:
    """The recurrent layers of a model."""
    if isinstance(model, LanguageModel):
        return Opened(model, tuple(layer for layer in model.layers if isinstance(layer, Recurrent)))
    layer = model.layer if isinstance(model, SequenceModel) else model
    if type(layer) is nn.LSTM:
        layer = LSTM.from_torch(layer)
    elif type(layer) is nn.GRU:
        layer = GRU.from_torch(layer)
    if not isinstance(layer, Recurrent):
        raise TypeError(
            "expected a recurrent layer, a SequenceModel, a LanguageModel, or torch's LSTM or GRU, got "
            f"{type(model).__module__}.{type(model).__name__}"
        )
    if layer.batch_first:
        layer = copy.copy(layer)  # shares the weights
        layer.batch_first = False
    return Opened(model, (layer,))


def as_model(layer: Recurrent | nn.LSTM | nn.GRU, head: nn.Linear, *, readout: Readout = "every") -> SequenceModel:
    """Combine a layer and a linear read-out into a model for any analysis. Layers of torch are converted.

    The weights are copied: the model computes `head(layer(x))`, and changing it does not change layer or head.

    Args:
        layer: a recurrent layer.
        head: read-out of its hidden values.
        readout: "every" for outputs at every step, "last" for one after the last step of a sequence.
    """
    inner = copy.deepcopy(opened(layer).layers[0])
    width = inner.output_size * (1 + inner.bidirectional)
    if head.in_features != width:
        raise ValueError(f"expected a read-out with {width} input features, got {head.in_features}")
    model = SequenceModel(inner, head.out_features, readout=readout)
    with torch.no_grad():
        model.head.weight.copy_(head.weight)
        model.head.bias.copy_(torch.zeros_like(model.head.bias) if head.bias is None else head.bias)
    return model.train(layer.training)


def exponents_of(layer: Recurrent, place: Place) -> Tensor | None:
    """p of every unit of a place, float64 `(H,)` on the CPU; None if the gate is not a power law."""
    gate = getattr(layer.cell, "gate", None)
    if not isinstance(gate, PowerLaw):
        return None
    weights = {name: getattr(layer, name + place.suffix).detach() for name in gate.per_unit}
    p = torch.as_tensor(gate.exponent(weights, torch.float64), dtype=torch.float64)
    return p.expand(layer.hidden_size).cpu().clone()
