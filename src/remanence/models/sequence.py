"""A recurrent layer with a linear read-out: the model of all experiments except language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..engines.side_by_side import rejoined
from ..nn.dropout import Dropout
from ..nn.recurrent import Recurrent
from ..nn.sequence import as_times, expect_lengths
from ..nn.times import between
from ..nn.together import together
from ..pretrained import Pretrained, describe, make
from .inputs import FILLS, Missing, filled
from .read_out import read_out

Layer = Recurrent | nn.LSTM | nn.GRU


class SequenceModel(Pretrained):
    """A recurrent layer with dropout and a linear read-out, and an embedding if the inputs are symbols.

    Args:
        layer: The recurrent layer: one of this package, or a `torch.nn.LSTM` or `torch.nn.GRU`, which runs in torch.
            With batch_first, inputs, dt, mask and outputs of the model are batch first as well.
        outputs: Width O of the read-out.
        readout: "every" for outputs at every step, "last" for one output after the last step of a sequence.
        dropout: Dropout probability between the layer and the read-out.
        symbols: Number of symbols if the inputs are symbols (integers): each is embedded as a vector with the width of
            the layer's input. None if the inputs are vectors.
        missing: How to fill values that the mask marks as missing: "zero" (the mean, if inputs are standardised), or
            "forward" for the last observed value of the same feature, zero before the first one of a call. None if no
            values are missing.
        mask_input: Whether to concatenate the mask to the values as input of the layer, whose input_size is then twice
            the number of features.
        dt_input: Whether to add the time since the previous step as an input feature of the layer. Layers that use dt
            get it in either case.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> model = rm.models.SequenceModel(rm.LSTM(3, 32, gate="fast"), outputs=10, readout="last")
        >>> logits, state = model(torch.randn(50, 4, 3), lengths=torch.tensor([50, 20, 33, 8]))
        >>> logits.shape
        torch.Size([4, 10])

        Missing values, with the mask as input:

        >>> model = rm.models.SequenceModel(rm.GRU(6, 32), outputs=1, missing="forward", mask_input=True)
        >>> x = torch.randn(50, 4, 3)
        >>> outputs, state = model(x, mask=torch.rand(50, 4, 3) < 0.8)
        >>> outputs.shape
        torch.Size([50, 4, 1])
    """

    def __init__(
        self,
        layer: Layer,
        outputs: int,
        *,
        readout: Literal["every", "last"] = "every",
        dropout: float = 0.0,
        symbols: int | None = None,
        missing: Missing | None = None,
        mask_input: bool = False,
        dt_input: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(layer, Recurrent | nn.LSTM | nn.GRU):
            raise TypeError(
                "expected a recurrent layer of remanence, a torch.nn.LSTM or a torch.nn.GRU, "
                f"got {type(layer).__module__}.{type(layer).__name__}"
            )
        if readout not in ("every", "last"):
            raise ValueError(f"expected readout to be 'every' or 'last', got {readout!r}")
        if missing is not None and missing not in FILLS:
            raise ValueError(f"expected missing to be one of {', '.join(FILLS)}, or None, got {missing!r}")
        if mask_input and missing is None:
            raise ValueError("expected missing='zero' or missing='forward' with mask_input=True, got missing=None")
        if symbols is not None and missing is not None:
            raise ValueError(f"expected missing=None for inputs that are symbols, got {missing!r}")
        self.layer = layer
        self.readout = readout
        self.missing = missing
        self.mask_input, self.dt_input = bool(mask_input), bool(dt_input)
        self.input_size = _inputs_beside(layer.input_size, self.mask_input, self.dt_input)
        self.dropout = Dropout(dropout)
        weight = next(layer.parameters())
        self.embedding = None
        if symbols is not None:
            self.embedding = nn.Embedding(symbols, self.input_size, device=weight.device, dtype=weight.dtype)
        self.head = nn.Linear(width_of(layer), outputs, device=weight.device, dtype=weight.dtype)

    def extra_repr(self) -> str:
        shown = [f"readout={self.readout!r}"]
        shown += [f"missing={self.missing!r}"] if self.missing else []
        return ", ".join([*shown, *(f"{name}=True" for name in ("mask_input", "dt_input") if getattr(self, name))])

    @property
    def batch_first(self) -> bool:
        """Whether the layer, and so the model, is batch first."""
        return bool(self.layer.batch_first)

    @property
    def takes_dt(self) -> bool:
        """Whether the model uses the time between steps."""
        return self.dt_input or (isinstance(self.layer, Recurrent) and self.layer.cell.takes_dt)

    def forward(
        self,
        inputs: Tensor,
        lengths: Tensor | None = None,
        dt: Tensor | None = None,
        state: Any = None,
        times: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Run the model over a batch of sequences. Shapes are time first; with batch_first the batch comes first.

        Args:
            inputs: `(T, B, I)`, padded at the end; `(T, B)` integers if the inputs are symbols.
            lengths: `(B,)` number of steps of every sequence; None if all have T steps.
            dt: `(T, B)` time since the previous step.
            state: Initial state of the layer; None for zeros.
            times: `(T, B)` absolute times of the steps, instead of dt.
            mask: `(T, B, I)` booleans, true where a value was observed. Requires `missing`.

        Returns:
            Outputs `(T, B, O)`, or `(B, O)` with readout="last", and the state after the last step of every sequence.
            Padding does not influence either; outputs in the padding are the bias of the read-out.

        Raises:
            ValueError: A shape does not fit, or the model does not take dt or a mask.
        """
        if times is not None:
            if dt is not None:
                raise ValueError("expected dt or times, got both")
            dt = between(times, inputs, self.batch_first, lengths)
        if self.batch_first:
            inputs, mask = inputs.transpose(0, 1), None if mask is None else mask.transpose(0, 1)
            dt = dt.T if isinstance(dt, Tensor) and dt.dim() == 2 else dt
        hidden, state = self._run(self.vectors(inputs, dt, mask), lengths, self.dt_of_layer(dt), state)
        if self.readout == "last":
            hidden = last(hidden, lengths)
        outputs = self.head(self.dropout(hidden))
        return outputs.transpose(0, 1) if self.batch_first and self.readout == "every" else outputs, state

    def vectors(self, inputs: Tensor, dt: Any = None, mask: Tensor | None = None) -> Tensor:
        """The input of the layer, `(T, B, I)`, from time-first inputs, dt and mask."""
        if self.embedding is not None:
            if mask is not None:
                raise ValueError("expected no mask for inputs that are symbols, got one")
            values: Tensor = self.embedding(inputs)
        else:
            values = filled(inputs, mask, self.missing)
        parts = [values]
        if self.mask_input:
            parts.append(torch.ones_like(values) if mask is None else mask.to(values))
        if self.dt_input:
            parts.append(_as_feature(dt, values))
        return values if len(parts) == 1 else torch.cat(parts, -1)

    def dt_of_layer(self, dt: Any) -> Any:
        """The dt to pass to the layer; None if only the model uses it, as an input feature."""
        layer_takes = isinstance(self.layer, Recurrent) and (self.layer.cell.takes_dt or not self.dt_input)
        if not layer_takes and not self.dt_input and dt is not None:
            raise ValueError(
                f"expected no dt, got one: torch.nn.{type(self.layer).__name__} does not use it without dt_input=True"
            )
        return dt if layer_takes else None

    def _run(self, vectors: Tensor, lengths: Tensor | None, dt: Any, state: Any) -> tuple[Tensor, Any]:
        """Run the layer on time-first vectors: hidden states `(T, B, H)`, zero in the padding, and the state."""
        first = self.batch_first
        given = vectors.transpose(0, 1) if first else vectors
        if isinstance(self.layer, Recurrent):
            dt = dt.T if first and isinstance(dt, Tensor) and dt.dim() == 2 else dt
            hidden, state = self.layer(given, state, dt, lengths=lengths)
        elif lengths is None:
            hidden, state = self.layer(given, state)
        else:
            steps, batch = vectors.shape[:2]
            known = expect_lengths(lengths, steps, batch).cpu()
            packed = pack_padded_sequence(given, known, batch_first=first, enforce_sorted=False)
            output, state = self.layer(packed, state)
            hidden, _ = pad_packed_sequence(output, batch_first=first, total_length=steps)
        return hidden.transpose(0, 1) if first else hidden, state

    def recurrent_layers(self) -> list[Recurrent]:
        return [self.layer] if isinstance(self.layer, Recurrent) else []

    def pretrained_arguments(self) -> dict[str, Any]:
        return {
            "layer": describe(self.layer),
            "outputs": self.head.out_features,
            "readout": self.readout,
            "dropout": self.dropout.p,
            "symbols": None if self.embedding is None else self.embedding.num_embeddings,
            "missing": self.missing,
            "mask_input": self.mask_input,
            "dt_input": self.dt_input,
        }

    @classmethod
    def from_arguments(cls, arguments: dict[str, Any], device: torch.device | str) -> Self:
        return cls(make(arguments.pop("layer"), device), **arguments)


def width_of(layer: Layer) -> int:
    """Width of the output of a layer, both directions together."""
    width = layer.output_size if isinstance(layer, Recurrent) else layer.proj_size or layer.hidden_size
    return width * (1 + bool(layer.bidirectional))


def forward_together(
    models: Sequence[SequenceModel],
    inputs: Tensor,
    lengths: Tensor | None = None,
    dt: Tensor | None = None,
    states: Sequence[Any] | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, list[Any]]:
    """Run R models that differ only in their weights side by side: `forward` with a leading R in every shape.

    Shapes are time first, also for models with batch_first.

    Args:
        models: R models with the same arguments.
        inputs: `(R, T, B, I)`, padded at the end; `(R, T, B)` integers if the inputs are symbols.
        lengths: `(R, B)` number of steps of every sequence; None if all have T steps.
        dt: `(R, T, B)` time since the previous step.
        states: One initial state per model; None for zeros.
        mask: `(R, T, B, I)` booleans, true where a value was observed.

    Returns:
        Outputs `(R, T, B, O)` or `(R, B, O)`, and the state of every model.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> models = [rm.models.SequenceModel(rm.LSTM(3, 16), outputs=1) for seed in range(5)]
        >>> outputs, states = rm.models.forward_together(models, torch.randn(5, 20, 4, 3))
        >>> outputs.shape
        torch.Size([5, 20, 4, 1])
    """
    first = models[0]
    if not isinstance(first.layer, Recurrent) or len(models) == 1:
        results = [
            _alone(model, inputs[row], *(None if part is None else part[row] for part in (lengths, dt, states, mask)))
            for row, model in enumerate(models)
        ]
        outputs = [output for output, _ in results]
        return outputs[0].unsqueeze(0) if len(models) == 1 else torch.stack(outputs), [state for _, state in results]
    every_dt, every_mask = ([None] * len(models) if part is None else list(part) for part in (dt, mask))
    vectors = [model.vectors(*given) for model, *given in zip(models, inputs, every_dt, every_mask, strict=True)]
    times = None if dt is None else [model.dt_of_layer(own) for model, own in zip(models, every_dt, strict=True)]
    if first.batch_first:
        vectors = [own.transpose(0, 1) for own in vectors]
        times = None if times is None else [None if own is None else own.T for own in times]
    layers = [model.layer for model in models if isinstance(model.layer, Recurrent)]
    found = together(layers, vectors, states, times, None if lengths is None else list(lengths))
    if first.batch_first:
        found = [(output.transpose(0, 1), state) for output, state in found]
    if first.readout == "last":
        rows = [None] * len(models) if lengths is None else list(lengths)
        hidden = torch.stack([last(output, row) for (output, _), row in zip(found, rows, strict=True)])
    else:
        hidden = rejoined([output for output, _ in found])
    if first.dropout.p > 0:
        hidden = torch.stack([model.dropout(part) for model, part in zip(models, hidden, strict=True)])
    heads = [model.head for model in models]
    return read_out(hidden, [head.weight for head in heads], [head.bias for head in heads]), [s for _, s in found]


def _alone(
    model: SequenceModel, inputs: Tensor, lengths: Tensor | None, dt: Tensor | None, state: Any, mask: Tensor | None
) -> tuple[Tensor, Any]:
    """One model, time first. Calls the model, which may be compiled, and not its parts."""
    if model.batch_first:
        inputs = inputs.transpose(0, 1)
        dt, mask = (None if part is None else part.transpose(0, 1) for part in (dt, mask))
    masked = {} if mask is None else {"mask": mask}  # the forward of a subclass may not take a mask
    outputs, state = model(inputs, lengths, dt, state, **masked)
    return outputs.transpose(0, 1) if model.batch_first and model.readout == "every" else outputs, state


def last(hidden: Tensor, lengths: Tensor | None) -> Tensor:
    """The hidden state after the last step of every sequence, `(B, H)`."""
    if lengths is None:
        return hidden[-1]
    return hidden[lengths - 1, torch.arange(hidden.shape[1], device=hidden.device)]


def _inputs_beside(width: int, mask_input: bool, dt_input: bool) -> int:
    """Number of features, given the width of the layer's input and what is concatenated to them."""
    values, left = divmod(width - dt_input, 1 + mask_input)
    if left or values < 1:
        beside = " and ".join(name for name, there in (("the mask", mask_input), ("dt", dt_input)) if there)
        raise ValueError(
            f"expected a layer with inputs for the values and {beside} "
            f"({2 if mask_input else 1} I{' + 1' if dt_input else ''} inputs), got one of {width} inputs"
        )
    return values


def _as_feature(dt: Any, values: Tensor) -> Tensor:
    """dt as an input feature, `(T, B, 1)`; ones if it is None."""
    shape = values.shape[:2]
    if dt is None:
        return values.new_ones(*shape, 1)
    times = as_times(dt).to(values)
    if times.dim() == 1:
        times = times.unsqueeze(1)
    if times.dim() != 2 or times.shape[0] != shape[0] or times.shape[1] not in (1, shape[1]):
        raise ValueError(f"expected dt of shape {tuple(shape)} or ({shape[0]},), got {tuple(as_times(dt).shape)}")
    return times.expand(shape).unsqueeze(-1)
