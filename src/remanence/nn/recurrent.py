"""The layer behind LSTM, GRU, JANET, NRU and PhasedLSTM: torch's names, stacking, and the forward pass."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop

from .. import engines
from ..cells import Cell, GatedCell, wide
from ..gates import Gate
from ..timescales import Timescales
from . import biases
from .dropout import drop_weights
from .expect import expect_probability, expect_size
from .sequence import Inputs, Sequences

State = Any
"""A tensor, or a tuple of tensors, `(layers * directions, B, width)` each."""
ForgetBias = float | Literal["matched"] | None


class Place(NamedTuple):
    """One layer in one direction."""

    layer: int
    reverse: bool

    @property
    def suffix(self) -> str:
        return f"_l{self.layer}" + ("_reverse" if self.reverse else "")


class Recurrent(nn.Module):
    """Any cell over time, stacked and in one or both directions, with the arguments and manners of `torch.nn.LSTM`.

    Users build `LSTM`, `GRU`, `JANET`, `NRU` or `PhasedLSTM`; a new cell becomes a layer by subclassing this.

    Args:
        cell: the update at one step.
        input_size: number of input features I.
        hidden_size: number of units H.
        num_layers: layers on top of each other.
        bias: whether there are biases.
        batch_first: whether batched input and output are `(B, T, features)`; the state never is.
        dropout: probability of dropping an output of a layer that goes on to the next one.
        bidirectional: whether a second pass runs from the end, its output beside that of the first.
        proj_size: width of the projected hidden state; 0 for none.
        forget_bias: where the forget gate starts: a bias, "matched" for a forget value of 0.731, None for the default.
        timescales: timescales to start with, for all layers or one entry (or None) per layer.
        weight_drop: probability of dropping an entry of the recurrent matrices, drawn once per call.
        engine: how to run: "auto", or the name of an engine.
    """

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        forget_bias: ForgetBias = None,
        timescales: Timescales | Sequence[Timescales | None] | None = None,
        weight_drop: float = 0.0,
        engine: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.cell = cell
        self.input_size = expect_size("input_size", input_size)
        self.hidden_size = expect_size("hidden_size", hidden_size)
        self.num_layers = expect_size("num_layers", num_layers)
        self.bias = bool(bias)
        self.batch_first = bool(batch_first)
        self.dropout = expect_probability("dropout", dropout)
        self.bidirectional = bool(bidirectional)
        self.proj_size = self._expect_proj_size(proj_size)
        self.weight_drop = expect_probability("weight_drop", weight_drop)
        self.engine = engines.check_name(engine)
        self.forget_bias = forget_bias
        self.timescales = biases.per_layer(timescales, num_layers)
        if self.dropout > 0 and num_layers == 1:
            warnings.warn(f"dropout={dropout} acts between layers and has no effect with num_layers=1", stacklevel=3)
        biases.expect(self)
        for place in self.places:
            shapes = cell.shapes(self._inputs_of(place.layer), hidden_size, self.output_size, self.bias)
            for name, shape in shapes.items():
                self.register_parameter(
                    name + place.suffix, nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                )
            biases.register_frozen(self, place)
        self._names = tuple(shapes)
        self.reset_parameters()

    # What it is made of.

    @property
    def places(self) -> list[Place]:
        """Layers and directions in the order of the state: l0, l0_reverse, l1, ..."""
        directions = (False, True) if self.bidirectional else (False,)
        return [Place(layer, reverse) for layer in range(self.num_layers) for reverse in directions]

    @property
    def output_size(self) -> int:
        """Width of the hidden state of one direction."""
        return self.proj_size or self.hidden_size

    @property
    def gate(self) -> Gate:
        """The forget gate."""
        if not isinstance(self.cell, GatedCell):
            raise ValueError(f"expected a layer with a forget gate, got {type(self).__name__}, which has none")
        return self.cell.gate

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters, one list per layer and direction, as in torch."""
        return [[getattr(self, name + place.suffix) for name in self._names] for place in self.places]

    def flatten_parameters(self) -> None:
        """Does nothing; here so that code written for `torch.nn.LSTM` runs."""

    def forget_biases(self) -> list[tuple[Tensor, ...]]:
        """For every layer and direction, the sums of the biases of the rows of the gate, `(H,)` each."""
        return [biases.of_gate(self, place) for place in self.places]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all weights anew: U(-1/sqrt(H), 1/sqrt(H)) as in torch, then what cell, gate and timescales ask for."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            parameter.uniform_(-bound, bound)
        for place in self.places:
            self.cell.initialise({name: getattr(self, name + place.suffix) for name in self._names})
            biases.initialise(self, place)

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value != default:
                shown.append(f"{name}={value!r}")
        if any(entry is not None for entry in self.timescales):
            same = all(entry is self.timescales[0] for entry in self.timescales)
            shown.append(f"timescales={self.timescales[0] if same else list(self.timescales)!r}")
        return ", ".join(shown)

    # Running it.

    def forward(
        self, input: Inputs, state: State | None = None, dt: Any = None, *, hx: State | None = None
    ) -> tuple[Any, State]:
        """Run over sequences.

        Args:
            input: `(T, B, I)`, `(B, T, I)` with batch_first, `(T, I)` unbatched, or a PackedSequence.
            state: state to start from, as returned; zeros if None. `hx` is another name for it.
            dt: time since the previous step, shaped like the input without its features, or `(T,)`; None for unit
                steps. Packed or padded where the input is packed.

        Returns:
            The hidden state of the last layer at every step, in the form of the input, and the state after the last
            step.
        """
        output, state, _ = self._run(input, _one_state(state, hx), dt, recorded=None)
        return output, state

    def watch(
        self, input: Inputs, state: State | None = None, dt: Any = None
    ) -> tuple[list[dict[str, Tensor]], State, Tensor | None]:
        """Run on the loop engine and keep what every gate did.

        Returns:
            A mapping of `(T, B, H)` per layer and direction, the state after the last step, and the lengths of the
            sequences, `(B,)`, or None where all have T steps.
        """
        recorded: list[dict[str, Tensor]] = []
        _, state, sequences = self._run(input, state, dt, recorded)
        records = [{name: sequences.in_given_order(value) for name, value in values.items()} for values in recorded]
        return records, state, sequences.lengths_as_given

    def _run(
        self, input: Inputs, state: State | None, dt: Any, recorded: list[dict[str, Tensor]] | None
    ) -> tuple[Any, State, Sequences]:
        sequences = Sequences.arrange(input, self.input_size, self.batch_first)
        dtype = self._product_dtype(sequences.values)
        values = sequences.values.to(dtype)
        widths = self.cell.widths(self.hidden_size, self.output_size)
        dtypes = {name: dtype if name == "hidden" else wide(dtype) for name in widths}
        before = sequences.arrange_state(state, widths, len(self.places), dtypes)
        forward_dt = self._expect_dt(sequences, dt, wide(dtype))
        reverse_dt = None if forward_dt is None else sequences.reversed_dt(forward_dt)

        after: list[tuple[Tensor, ...]] = []
        outputs: list[Tensor] = []
        for index, place in enumerate(self.places):
            task = engines.Task(
                cell=self._cell_now(),
                weights=self._weights(place, dtype),
                inputs=values,
                state=tuple(part[index] for part in before),
                dt=reverse_dt if place.reverse else forward_dt,
                lengths=sequences.lengths,
                reverse=place.reverse,
            )
            if recorded is None:
                result = engines.choose(self.engine, task).run(task)
            else:
                result, seen = engines.loop.record(task)
                recorded.append(seen)
            after.append(result.state)
            outputs.append(result.output)
            if len(outputs) == 1 + self.bidirectional:
                values = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
                outputs = []
                if self.dropout > 0 and place.layer < self.num_layers - 1:
                    values = drop(values, self.dropout, self.training)

        final = tuple(torch.stack(parts) for parts in zip(*after, strict=True))
        return sequences.restore(values), sequences.restore_state(final), sequences

    def _cell_now(self) -> Cell:
        """The cell as it behaves in the present mode."""
        return self.cell

    def _weights(self, place: Place, dtype: torch.dtype) -> dict[str, Tensor]:
        """Weights of one layer and direction as they act now: dropped, frozen, matrices in the dtype of products."""
        weights = {name: getattr(self, name + place.suffix) for name in self._names}
        weights["weight_hh"] = drop_weights(weights["weight_hh"], self.weight_drop, self.training)
        weights.update(biases.acting(self, place))
        return {name: weight.to(dtype) if weight.dim() == 2 else weight for name, weight in weights.items()}

    def _product_dtype(self, values: Tensor) -> torch.dtype:
        """The dtype of the matrix products: that of the weights, or autocast's."""
        own: torch.dtype = getattr(self, self._names[0] + self.places[0].suffix).dtype
        device = values.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device) and own != torch.float64:
            return torch.get_autocast_dtype(device)
        if values.dtype != own:
            raise ValueError(f"expected input of dtype {own} like the weights, got {values.dtype}")
        return own

    def _expect_dt(self, sequences: Sequences, dt: Any, dtype: torch.dtype) -> Tensor | None:
        if dt is not None and not self.cell.takes_dt:
            raise ValueError(f"expected no dt, got one: {self._describe()} has no use for the time between steps")
        return sequences.arrange_dt(dt, dtype)

    def _describe(self) -> str:
        if isinstance(self.cell, GatedCell):
            return f"{type(self).__name__} with gate {self.gate.name!r}"
        return type(self).__name__

    def _inputs_of(self, layer: int) -> int:
        return self.input_size if layer == 0 else self.output_size * (1 + self.bidirectional)

    def _expect_proj_size(self, proj_size: int) -> int:
        if proj_size and not self.cell.projects:
            raise ValueError(f"expected proj_size to be 0, got {proj_size}: {type(self).__name__} does not project")
        if isinstance(proj_size, bool) or not isinstance(proj_size, int) or not 0 <= proj_size < self.hidden_size:
            raise ValueError(
                f"expected proj_size to be 0 or smaller than hidden_size {self.hidden_size}, got {proj_size!r}"
            )
        return proj_size


_DEFAULTS = {
    "proj_size": 0,
    "num_layers": 1,
    "bias": True,
    "batch_first": False,
    "dropout": 0.0,
    "bidirectional": False,
    "forget_bias": None,
    "weight_drop": 0.0,
    "engine": "auto",
}


def _one_state(state: State | None, hx: State | None) -> State | None:
    if state is not None and hx is not None:
        raise TypeError("expected either state or hx, which are two names for one thing, got both")
    return hx if state is None else state
