"""A recurrent layer with a linear read-out: the model of every experiment that is not a language model."""

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
    """Embedding, if inputs are symbols; recurrent layer, dropout, linear read-out.

    Args:
        layer: the recurrent layer: one of this package, or a `torch.nn.LSTM` or `torch.nn.GRU`, which runs as torch
            runs it. With batch_first, inputs, dt, mask and outputs of the model have the batch first as well.
        outputs: width of the read-out O.
        readout: "every" for outputs at every step, "last" for one after the last step of a sequence.
        dropout: probability of dropping an output of the layer before the read-out.
        symbols: number of symbols, where inputs are symbols: each gets a vector of its own, as wide as the layer's
            input. None where inputs are vectors already.
        missing: what stands in the place of values that a mask says are missing: "zero" (the mean, where inputs are
            standardised), or "forward" for the last value seen of the same feature, zero before the first of a call.
            None where no values are missing.
        mask_input: whether the mask goes into the layer beside the values. The layer is then twice as wide.
        dt_input: whether the time since the previous step is one more input of the layer. Layers that use dt
            otherwise get it in any case.
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
        """Whether its layer, and so the model, takes batches first."""
        return bool(self.layer.batch_first)

    @property
    def takes_dt(self) -> bool:
        """Whether it has a use for the time between steps."""
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
        """Run over sequences. Shapes are those of a layer without batch_first; with it the batch comes first.

        Args:
            inputs: `(T, B, I)`, padded at the end; `(T, B)` whole numbers where inputs are symbols.
            lengths: `(B,)` steps of every sequence, None where all have T.
            dt: `(T, B)` times between steps.
            state: state to start from.
            times: `(T, B)` times of steps, in place of dt.
            mask: `(T, B, I)` booleans, true where a value was seen, for a model that says what is `missing`.

        Returns:
            `(T, B, O)`, or `(B, O)` for the read-out after the last step, and the state after the last step of every
            sequence. What stands in the padding has no influence on either; outputs there are the bias of the read-out.
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
        """What goes into the layer, `(T, B, I)`, from inputs, dt and mask with time first."""
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
        """The time between steps, for the layer; None where the model alone has a use for it."""
        layer_takes = isinstance(self.layer, Recurrent) and (self.layer.cell.takes_dt or not self.dt_input)
        if not layer_takes and not self.dt_input and dt is not None:
            raise ValueError(
                f"expected no dt, got one: torch.nn.{type(self.layer).__name__} has no use for it without dt_input=True"
            )
        return dt if layer_takes else None

    def _run(self, vectors: Tensor, lengths: Tensor | None, dt: Any, state: Any) -> tuple[Tensor, Any]:
        """The layer over vectors with time first: hidden values `(T, B, H)`, zero in the padding, and the state."""
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
    """Hidden values that a layer gives at a step, those of both directions together."""
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
    """Run models that differ in their weights alone side by side: `forward` with R in front of every shape.

    Time comes before the batch, also for models with batch_first.

    Returns:
        `(R, T, B, O)` or `(R, B, O)`, and the state of every model.
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
    """`model` with time first. It is called, not its parts: it may be compiled."""
    if model.batch_first:
        inputs = inputs.transpose(0, 1)
        dt, mask = (None if part is None else part.transpose(0, 1) for part in (dt, mask))
    masked = {} if mask is None else {"mask": mask}  # a subclass may know of none
    outputs, state = model(inputs, lengths, dt, state, **masked)
    return outputs.transpose(0, 1) if model.batch_first and model.readout == "every" else outputs, state


def last(hidden: Tensor, lengths: Tensor | None) -> Tensor:
    """The hidden state after the last step of every sequence, `(B, H)`. What comes after it has no influence."""
    if lengths is None:
        return hidden[-1]
    return hidden[lengths - 1, torch.arange(hidden.shape[1], device=hidden.device)]


def _inputs_beside(width: int, mask_input: bool, dt_input: bool) -> int:
    """How many inputs of so many are values, where mask and dt are inputs too."""
    values, left = divmod(width - dt_input, 1 + mask_input)
    if left or values < 1:
        beside = " and ".join(name for name, there in (("the mask", mask_input), ("dt", dt_input)) if there)
        raise ValueError(
            f"expected a layer with room for the values and {beside} "
            f"({2 if mask_input else 1} I{' + 1' if dt_input else ''} inputs), got one of {width} inputs"
        )
    return values


def _as_feature(dt: Any, values: Tensor) -> Tensor:
    """dt as an input, `(T, B, 1)`; unit steps where there is none."""
    shape = values.shape[:2]
    if dt is None:
        return values.new_ones(*shape, 1)
    times = as_times(dt).to(values)
    if times.dim() == 1:
        times = times.unsqueeze(1)
    if times.dim() != 2 or times.shape[0] != shape[0] or times.shape[1] not in (1, shape[1]):
        raise ValueError(f"expected dt of shape {tuple(shape)} or ({shape[0]},), got {tuple(as_times(dt).shape)}")
    return times.expand(shape).unsqueeze(-1)
