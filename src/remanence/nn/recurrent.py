"""The base class of LSTM, GRU and all other layers: parameters with torch's names, stacking, and the forward pass."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .. import engines
from ..cells import Cell, wide
from ..pretrained import Pretrained
from ..timescales import Timescales
from . import biases
from .biases import ForgetBias
from .dropout import drop
from .expect import expect_count, expect_probability, expect_size
from .place import Place
from .sequence import Inputs, Sequences, expect_times_of_step, is_ready, refuse_proxy
from .times import between, warn_if_absolute
from .weighted import Weighted

State = Any
"""A tensor, or a tuple of tensors, `(layers * directions, B, width)` each."""


class Recurrent(Weighted, Pretrained):
    """Base class of all layers: runs a cell over time, with the arguments and conventions of `torch.nn.LSTM`.

    Use `LSTM`, `GRU`, `JANET` or one of the others. To turn a new cell into a layer, subclass this.

    Args:
        cell: The update at one step, see `remanence.cells`.
        input_size: Number of input features I.
        hidden_size: Number of units H.
        num_layers: Number of stacked layers.
        bias: Whether the layer has biases.
        batch_first: Whether batched input and output are `(B, T, features)` instead of `(T, B, features)`. The shape
            of the state does not change.
        dropout: Dropout probability on the output of every layer except the last.
        bidirectional: Whether to add a second pass that runs backwards in time. Its output is concatenated to that of
            the first.
        proj_size: Width of the projected hidden state; 0 for no projection.
        forget_bias: Initial forget bias: a number, "matched" for an initial forget value of 0.731, or None for the
            default of the gate.
        timescales: Initial timescales, an object of `remanence.timescales` for all layers, or a list with one (or None)
            per layer.
        weight_drop: Probability of dropping an entry of the recurrent matrices, drawn once per forward call.
        recompute: Number of chunks for activation checkpointing: training keeps only the states between the chunks and
            recomputes the rest. 0 turns it off.
        engine: "auto", or the name of an engine, see `remanence.engines`.
        device: Device of the parameters.
        dtype: Floating-point type of the parameters.

    Examples:
        >>> import torch
        >>> from remanence import cells, gates, nn
        >>> layer = nn.Recurrent(cells.LSTMCell(gates.Fast()), 8, 32)
        >>> output, (h_n, c_n) = layer(torch.randn(100, 4, 8))
        >>> output.shape
        torch.Size([100, 4, 32])
    """

    _checked_dt = False

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
        recompute: int = 0,
        engine: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.cell = cell
        self._ready()
        self.input_size = expect_size("input_size", input_size)
        self.hidden_size = expect_size("hidden_size", hidden_size)
        self.num_layers = expect_size("num_layers", num_layers)
        self.bias = bool(bias)
        self.batch_first = bool(batch_first)
        self.dropout = expect_probability("dropout", dropout)
        self.bidirectional = bool(bidirectional)
        self.proj_size = self._expect_proj_size(proj_size)
        self.weight_drop = expect_probability("weight_drop", weight_drop)
        self.recompute = expect_count("recompute", recompute)
        self.engine = engines.check_name(engine)
        self.forget_bias = forget_bias
        self.timescales = biases.per_layer(timescales, num_layers)
        if self.dropout > 0 and num_layers == 1:
            warnings.warn(
                f"dropout={dropout} acts between layers and has no effect with num_layers=1",
                stacklevel=_level_of_user(),
            )
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

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._ready()  # what engines cache about a cell is neither copied nor pickled

    def __prepare_scriptable__(self) -> Any:
        raise RuntimeError(f"expected torch.export.export, which supports {type(self).__name__}, got torch.jit.script")

    def _ready(self) -> None:
        """Let the engines analyse the cell now, not while torch traces the layer."""
        self._find_recurrence()
        engines.ready(self.recurrence)
        self._quick: dict[Place, engines.QuickSteps] = {}

    # Structure.

    @property
    def places(self) -> list[Place]:
        """Layers and directions in the order of the state: l0, l0_reverse, l1, ..."""
        directions = (False, True) if self.bidirectional else (False,)
        return [Place(layer, reverse) for layer in range(self.num_layers) for reverse in directions]

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters as in torch: one list per layer and direction."""
        return [[getattr(self, name + place.suffix) for name in self._names] for place in self.places]

    def flatten_parameters(self) -> None:
        """Does nothing; here so that code written for `torch.nn.LSTM` runs."""

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        for name, default in DEFAULTS.items():
            value = getattr(self, name)
            if value != default:
                shown.append(f"{name}={value!r}")
        if any(entry is not None for entry in self.timescales):
            same = all(entry is self.timescales[0] for entry in self.timescales)
            shown.append(f"timescales={self.timescales[0] if same else list(self.timescales)!r}")
        return ", ".join(shown)

    def pretrained_arguments(self) -> dict[str, Any]:
        names = [name for name in inspect.signature(type(self)).parameters if name not in ("device", "dtype")]
        found = {name: self._argument(name) for name in names}
        return {name: value for name, value in found.items() if value is not UNKNOWN}

    def _argument(self, name: str) -> Any:
        """The value of a constructor argument, wherever the layer stores it; `UNKNOWN` if it is not stored."""
        if name == "input_gate":
            return "coupled" if getattr(self.cell, "coupled", False) else "separate"
        if name == "timescales":
            return self.timescales if any(entry is not None for entry in self.timescales) else None
        for keeper in (self, self.cell, *(getattr(self.cell, part, None) for part in ("gate", "rotations"))):
            if hasattr(keeper, name):
                return getattr(keeper, name)
        return UNKNOWN

    # Running.

    def forward(
        self,
        input: Inputs,
        state: State | None = None,
        dt: Any = None,
        *,
        hx: State | None = None,
        lengths: Any = None,
        times: Any = None,
    ) -> tuple[Any, State]:
        """Run the layer over a batch of sequences.

        Args:
            input: `(T, B, I)`, `(B, T, I)` with batch_first, `(T, I)` unbatched, or a PackedSequence.
            state: Initial state, as returned by a previous call: a tensor or a tuple of tensors of shape
                `(layers * directions, B, width)`, or `(layers * directions, width)` unbatched. None for zeros.
            dt: Time since the previous step, shaped like the input without its features, or `(T,)`. None for unit
                steps. Packed or padded if the input is packed.
            hx: Another name for `state`, as in torch.
            lengths: Number of steps of every sequence of a padded batch, `(B,)`; None if all have T steps. Padding is
                at the end and is ignored in both directions: the result is that of a PackedSequence, without packing.
            times: Absolute times of the steps, instead of dt and of the same shape. They must not decrease; the first
                step has dt = 1.

        Returns:
            The output `(T, B, directions * width)`, the hidden state of the last layer at every step, in the layout of
            the input (batch first, unbatched or packed) and zero past the end of a sequence; and the state after the
            last step of every sequence.

        Raises:
            ValueError: A shape does not fit, dt or times are negative, not finite or decreasing, or the layer does not
                take dt.
            TypeError: The input is not a floating-point tensor or PackedSequence, or the state is not made of tensors.
        """
        state = _one_state(state, hx)
        if times is not None:
            if dt is not None:
                raise ValueError("expected dt or times, got both")
            self._expect_use_of_dt(times)
            dt = between(times, input, self.batch_first, lengths)
        if lengths is None:
            quick = self._single_step(input, state, dt)
            if quick is not None:
                return quick
        ((output, state, _),) = run([self], [input], [state], [dt], [lengths])
        return output, state

    def example_task(self, steps: int = 2, batch: int = 1, dt: bool = False) -> engines.EngineTask:
        """The task that an engine gets for the first layer: zeros of these sizes, on the device of the weights."""
        weight = getattr(self, self._names[0] + self.places[0].suffix)
        zeros = weight.new_zeros(steps, batch, self.input_size)
        given = weight.new_ones(steps, batch, dtype=wide(weight.dtype)) if dt else None
        if self.batch_first:
            zeros, given = zeros.transpose(0, 1), None if given is None else given.t()
        return _Run(self, zeros, None, given).task(0, self.places[0])

    def watch(
        self, input: Inputs, state: State | None = None, dt: Any = None, lengths: Any = None
    ) -> tuple[list[dict[str, Tensor]], State, Tensor | None]:
        """Run on the loop engine and record every gate. `remanence.record` is the public form.

        Args:
            input: As in `forward`.
            state: As in `forward`.
            dt: As in `forward`.
            lengths: As in `forward`.

        Returns:
            A mapping from names to `(T, B, H)` per layer and direction, the state after the last step, and the lengths
            of the sequences, `(B,)`, or None if all have T steps.
        """
        recorded: list[dict[str, Tensor]] = []
        ((_, state, sequences),) = run([self], [input], [state], [dt], [lengths], recorded)
        records = [{name: sequences.in_given_order(value) for name, value in values.items()} for values in recorded]
        return records, state, sequences.lengths_as_given

    def _single_step(self, input: Inputs, state: State | None, dt: Any) -> tuple[Tensor, State] | None:
        """A fast path of `forward` for a single step of a few sequences in inference; None if it does not apply.

        It only takes valid arguments. The general path handles everything else and raises all errors.
        """
        if (
            torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or type(input) is not Tensor
            or (self.engine != "auto" and self.engine != engines.STEPPING.get(input.device.type))
        ):
            return None
        turned = self.batch_first and input.dim() == 3
        values = input.transpose(0, 1) if turned else input
        if values.dim() not in (2, 3) or values.shape[0] != 1 or values.dtype != torch.float32:
            return None
        places = self.places
        before = _of_places((state,) if isinstance(state, Tensor) else state, len(places))
        if before is None or values.shape[-1] != self.input_size:
            return None
        if (state is None and self._learns_start) or (self.training and self.dropout + self.weight_drop > 0):
            return None
        times = None
        if is_ready(dt, values) and dt.shape == input.shape[:-1]:
            self._expect_use_of_dt(dt)
            times = expect_times_of_step(dt.view(values.shape[:-1]))
        elif dt is not None:
            times = self._expect_dt(Sequences.arrange(input, self.input_size, self.batch_first), dt, values.dtype)
        cell, after, outputs = self._cell_now(), [], []
        values = values.contiguous()
        for place, earlier in zip(places, before, strict=True):
            now = torch.ones_like(times) if times is not None and place.reverse else times
            copied = place.layer == self.num_layers - 1 and not self.bidirectional  # the output may be changed in place
            weights = partial(self._stored_weights, place)
            steps = self._quick.get(place) or self._quick.setdefault(place, engines.QuickSteps(place.suffix))
            found = steps.step(cell, self._parameters, weights, values, earlier, now, copied)
            if found is None:
                return None
            after.append(found[:-1] if copied else found)
            outputs.append(found[-1] if copied else found[0])
            if len(outputs) == 1 + self.bidirectional:
                values = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
                outputs = []
        final = after[0] if len(after) == 1 else tuple(map(torch.cat, zip(*after, strict=True)))
        return values.transpose(0, 1) if turned else values, final[0] if len(final) == 1 else final

    def _cell_now(self) -> Cell:
        """The cell that engines run in the current mode (training or evaluation)."""
        return self.recurrence

    def _expect_dt(self, sequences: Sequences, dt: Any, dtype: torch.dtype) -> Tensor | None:
        self._expect_use_of_dt(dt)
        found = sequences.arrange_dt(dt, dtype)
        if found is not None and not torch.compiler.is_compiling() and not self._checked_dt:
            self._checked_dt = warn_if_absolute(found)
        return found

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


def run(
    layers: Sequence[Recurrent],
    inputs: Sequence[Inputs],
    states: Sequence[State | None],
    dts: Sequence[Any],
    lengths: Sequence[Any],
    recorded: list[dict[str, Tensor]] | None = None,
) -> list[tuple[Any, State, Sequences]]:
    """Run layers that differ only in their weights, each on its own input.

    Args:
        layers: Usually one. Several run side by side, in one launch if the engine supports that.
        inputs: Input of every layer.
        states: Initial state of every layer.
        dts: Times between steps of every layer.
        lengths: Lengths of the sequences of every layer; None if all have T steps.
        recorded: List to append gate records to. There must be one layer, which then runs on the loop engine.

    Returns:
        For every layer: output, state after the last step, and the arranged sequences.
    """
    first = layers[0]
    runs = [_Run(layer, *given) for layer, *given in zip(layers, inputs, states, dts, lengths, strict=True)]
    for index, place in enumerate(first.places):
        tasks = [each.task(index, place) for each in runs]
        if recorded is None:
            results = engines.run(first.engine, tasks, first.recompute)
        else:
            result, seen = engines.loop.record(tasks[0])
            recorded.append(seen)
            results = [result]
        for each, result in zip(runs, results, strict=True):
            each.take(place, result)
    return [each.finish() for each in runs]


class _Run:
    """One forward pass of a layer: the input of the current place, and the results of the places before it."""

    def __init__(self, layer: Recurrent, input: Inputs, state: State | None, dt: Any, lengths: Any = None) -> None:
        self.layer = layer
        self.sequences = sequences = Sequences.arrange(input, layer.input_size, layer.batch_first, lengths)
        self.dtype = dtype = layer._product_dtype(sequences.values)
        self.values = sequences.values if sequences.values.dtype == dtype else sequences.values.to(dtype)
        widths = layer.cell.widths(layer.hidden_size, layer.output_size)
        self.zeros = engines.Zeros(tuple(widths.values()))
        self.before = None
        if state is not None:
            dtypes = {name: dtype if name == "hidden" else wide(dtype) for name in widths}
            self.before = sequences.arrange_state(state, widths, len(layer.places), dtypes)
        self.dt = None if dt is None else layer._expect_dt(sequences, dt, wide(dtype))
        self.reverse_dt = None if self.dt is None else sequences.reversed_dt(self.dt)
        self.outputs: list[Tensor] = []
        self.after: list[tuple[Tensor, ...]] = []

    def task(self, index: int, place: Place) -> engines.EngineTask:
        """The engine task of a place."""
        return engines.EngineTask(
            cell=self.layer._cell_now(),
            weights=self.layer._weights(place, self.dtype),
            inputs=self.values,
            state=self._state(index, place),
            dt=self.reverse_dt if place.reverse else self.dt,
            lengths=self.sequences.lengths,
            reverse=place.reverse,
        )

    def _state(self, index: int, place: Place) -> tuple[Tensor, ...] | engines.Zeros:
        """The initial state of a place."""
        if self.before is not None:
            return tuple(part[index] for part in self.before)
        start = self.layer._start(place)
        return self.zeros if start is None else (start.to(self.dtype).expand(self.values.shape[1], -1),)

    def take(self, place: Place, result: engines.EngineResult) -> None:
        """Collect the result of a place. Once all directions of a layer have run, it is the input of the next layer."""
        layer = self.layer
        self.after.append(result.state)
        self.outputs.append(result.output)
        if len(self.outputs) == 1 + layer.bidirectional:
            self.values = torch.cat(self.outputs, -1) if layer.bidirectional else self.outputs[0]
            self.outputs = []
            if layer.dropout > 0 and place.layer < layer.num_layers - 1:
                self.values = drop(self.values, layer.dropout, layer.training)

    def finish(self) -> tuple[Any, State, Sequences]:
        """Output and state in the layout of the user."""
        parts = zip(*self.after, strict=True)
        final = tuple(part[0].unsqueeze(0) if len(part) == 1 else torch.stack(part) for part in parts)
        return self.sequences.restore(self.values), self.sequences.restore_state(final), self.sequences


UNKNOWN = object()
DEFAULTS = {
    name: inspect.signature(Recurrent).parameters[name].default
    for name in (
        "proj_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "forget_bias",
        "weight_drop",
        "recompute",
        "engine",
    )
}
"""Arguments that a layer's repr shows if they differ from these defaults."""


def _level_of_user() -> int:
    """The `stacklevel` with which a warning points to the line of user code that called the package."""
    level, frame = 1, inspect.currentframe()
    frame = frame and frame.f_back
    while frame and frame.f_globals.get("__name__", "").split(".")[0] == __name__.split(".")[0]:
        level, frame = level + 1, frame.f_back
    return level


def _of_places(parts: Any, count: int) -> list[tuple[Tensor, ...] | None] | None:
    """A state of the layer split by place; None if it is not one. For a single place, a step checks what is in it."""
    if parts is None:
        return [None] * count
    if not isinstance(parts, tuple | list) or not parts:
        return None
    if count == 1:
        return [tuple(parts)]
    if not all(type(part) is Tensor and part.shape[:1] == (count,) for part in parts):
        return None
    return list(zip(*(part.split(1) for part in parts), strict=True))


def _one_state(state: State | None, hx: State | None) -> State | None:
    if state is not None and hx is not None:
        refuse_proxy(state)
        raise TypeError("expected either state or hx, which are the same argument, got both")
    return hx if state is None else state
