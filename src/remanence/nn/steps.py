"""Single steps as modules with the interface of `torch.nn.LSTMCell`, with their own weights or those of a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, Unpack

import torch
from torch import Tensor

from .. import engines
from ..cells import GatedCell, wide
from ..gates import Gate
from .gru import GRU
from .janet import JANET
from .keywords import StepKeywords, completed
from .lstm import LSTM, InputGate, PowerLawLSTM, shown_gates
from .place import Place
from .recurrent import DEFAULTS, Recurrent, State
from .sequence import as_times, expect_features, expect_state, expect_times, expect_times_of_step, is_ready
from .weighted import Weighted


class Alone(Place):
    """The only place of a single-step cell, whose weights have no suffix."""

    @property
    def suffix(self) -> str:
        return ""


class RecurrentCell(Weighted):
    """Base class of single-step cells: `state = cell(input, state, dt)`.

    Use `LSTMCell`, `GRUCell`, `JANETCell` or `PowerLawLSTMCell`, or make one from a layer with `of`. Parameters have
    the names of the layer without `_l0`. These are the names of `torch.nn.LSTMCell` and `torch.nn.GRUCell`, whose
    `state_dict` they load.

    Args:
        layer: Layer whose weights to use.
        place: Which of its stacked layers, and which direction.
    """

    cell: GatedCell
    layer: ClassVar[type[Recurrent]]
    """The class of layer that this is a single step of."""

    def __init__(self, layer: Recurrent, place: Place) -> None:
        super().__init__()
        self.cell = layer.cell  # type: ignore[assignment]
        self.input_size = layer._inputs_of(place.layer)
        self.hidden_size, self.proj_size = layer.hidden_size, layer.proj_size
        self.num_layers, self.bias = layer.num_layers, layer.bias
        self.forget_bias, self.timescales = layer.forget_bias, layer.timescales
        self.engine = "loop" if layer.engine == "loop" else "auto"
        self.weight_drop = 0.0
        self._names, self._place = layer._names, Alone(*place)
        self._quick = engines.QuickSteps()
        for name in self._names:
            self.register_parameter(name, layer.get_parameter(name + place.suffix))
        for name, buffer in layer.named_buffers():
            if name.endswith(place.suffix):
                self.register_buffer(name.removesuffix(place.suffix), buffer)
        self.train(layer.training)

    @classmethod
    def of(cls, layer: Recurrent, layer_index: int = 0, reverse: bool = False) -> Self:
        """A single step of a layer that shares the layer's weights: training one trains the other.

        Dropout between layers and weight drop apply to the layer only.

        Args:
            layer: A layer of the matching class, such as `remanence.LSTM` for `LSTMCell`.
            layer_index: Index of the stacked layer.
            reverse: Whether to use the weights of the backward direction.
        """
        if not isinstance(layer, cls.layer):
            raise TypeError(f"expected layer to be a remanence.{cls.layer.__name__}, got {type(layer).__name__}")
        if isinstance(layer_index, bool) or not isinstance(layer_index, int) or not 0 <= layer_index < layer.num_layers:
            raise ValueError(f"expected layer_index to be in [0, {layer.num_layers}), got {layer_index!r}")
        if reverse and not layer.bidirectional:
            raise ValueError("expected reverse=False for a layer of one direction, got True")
        place = Place(layer_index, bool(reverse))
        for name in layer._names:
            if layer._parameters.get(name + place.suffix) is None:
                raise ValueError(
                    f"expected a layer whose weights are parameters, got one whose {name}{place.suffix} is computed, "
                    "as by weight norm, pruning or a parametrization: call the layer itself with one step"
                )
        made = cls.__new__(cls)
        RecurrentCell.__init__(made, layer, place)
        return made

    @property
    def places(self) -> list[Place]:
        """The only place, whose weights have no suffix."""
        return [self._place]

    def forward(self, input: Tensor, hx: State | None = None, dt: Any = None) -> State:
        """Run one step.

        Args:
            input: `(B, I)`, or `(I,)` unbatched.
            hx: State before the step, as returned by the previous one; zeros if None.
            dt: Time since the previous step, `(B,)` or a number; None for a unit step.

        Returns:
            The state after the step, a tuple of `(B, width)` with the hidden state first; a single tensor for a GRU
            whose gate has no state.

        Raises:
            ValueError: A shape does not fit, dt is negative or not finite, or the cell does not take dt.
            TypeError: The input is not a floating-point tensor, or the state is not made of tensors.
        """
        state = None
        if self.engine != "loop" and not torch.is_grad_enabled():
            given = (hx,) if isinstance(hx, Tensor) else hx
            fits = type(input) is Tensor and 0 < input.dim() < 3 and input.shape[-1] == self.input_size
            if fits and (given is None or isinstance(given, tuple)):
                self._expect_use_of_dt(dt)
                times = None
                if dt is not None:
                    rows = input if input.dim() == 2 else input.unsqueeze(0)
                    times = self._expect_dt(dt, rows, expect_times_of_step)
                values = input.contiguous()
                state = self._quick.step(self.cell, self._parameters, self._weights_now, values, given, times)
        if state is None:
            state = self._step(input, hx, dt)
        return state[0] if len(state) == 1 else state

    def _weights_now(self) -> dict[str, Tensor]:
        return self._stored_weights(self._place)

    def _step(self, input: Tensor, hx: State | None, dt: Any) -> tuple[Tensor, ...]:
        """The general path, which checks all arguments."""
        if not isinstance(input, Tensor):
            raise TypeError(f"expected input to be a tensor, got {type(input).__name__}")
        expect_features(input, self.input_size, dims=(1, 2))
        self._expect_use_of_dt(dt)
        dtype = self._product_dtype(input)
        values = (input if input.dim() == 2 else input.unsqueeze(0)).to(dtype)
        widths = self.cell.widths(self.hidden_size, self.output_size)
        dtypes = [dtype if name == "hidden" else wide(dtype) for name in widths]
        if hx is None:
            state = tuple(
                values.new_zeros(len(values), width, dtype=kind)
                for width, kind in zip(widths.values(), dtypes, strict=True)
            )
        else:
            parts = (hx,) if isinstance(hx, Tensor) else hx
            expect_state(parts, widths, tuple(input.shape[:-1]))
            state = tuple(
                (part if input.dim() == 2 else part.unsqueeze(0)).to(kind)
                for part, kind in zip(parts, dtypes, strict=True)
            )
        given = values, state, None if dt is None else self._expect_dt(dt, values)
        after, step = None, engines.equation
        if self.engine != "loop":
            after = self._quick.step(self.cell, self._parameters, self._weights_now, *given)
            step = engines.step
        if after is None:
            after = step(self.cell, self._weights(self._place, dtype), *given)
        return after if input.dim() == 2 else tuple(part.squeeze(0) for part in after)

    def _expect_dt(self, dt: Any, values: Tensor, expect: Callable[[Tensor], Tensor] = expect_times) -> Tensor:
        """dt as `(B,)`; `expect` refuses values that are no time."""
        if is_ready(dt, values) and dt.shape == values.shape[:1]:
            return expect(dt)
        times = as_times(dt).to(values.device, wide(values.dtype))
        if tuple(times.shape) not in ((), (len(values),)):
            raise ValueError(f"expected dt of shape ({len(values)},) or a number, got {tuple(times.shape)}")
        return expect(times.expand(len(values)).contiguous())

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        values = {name: getattr(self, name) for name in ("proj_size", "bias", "forget_bias", "engine")}
        shown += [f"{name}={value!r}" for name, value in values.items() if value != DEFAULTS[name]]
        timescales = self.timescales[self._place.layer]
        if timescales is not None:
            shown.append(f"timescales={timescales}")
        return ", ".join(shown) + shown_gates(self.gate, getattr(self.cell, "coupled", self.gate.coupled))


FIRST = Place(0, False)


class LSTMCell(RecurrentCell):
    """A single step of `remanence.LSTM`: `h, c = cell(input, (h, c))`. With the default gate, `torch.nn.LSTMCell`.

    Args:
        input_size: Number of input features I.
        hidden_size: Number of units H.
        bias: Whether the cell has biases.
        proj_size: Width of the projected hidden state; 0 for no projection.
        gate: Forget gate: "sigmoid", "fast", "softsign", "refine", "ur", "power_law", or a `remanence.gates.Gate`. The
            state of a gate is part of the state: `h, c, age = cell(input, (h, c, age), dt)` with power_law.
        input_gate: "separate" or "coupled"; None uses the default of the gate.
        forget_bias: Initial forget bias, see `remanence.LSTM`.
        timescales: Initial timescales, see `remanence.LSTM`.
        engine: "loop" runs the reference equation; any other engine runs the fastest code there is for one step.
        device: Device of the parameters.
        dtype: Floating-point type of the parameters.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> cell = rm.LSTMCell(8, 32, gate="fast")
        >>> state = None
        >>> for x in torch.randn(5, 4, 8):  # 5 steps of 4 sequences
        ...     state = cell(x, state)
        >>> h, c = state
        >>> h.shape
        torch.Size([4, 32])

        A cell that shares the weights of a trained layer, for streaming:

        >>> layer = rm.LSTM(8, 32)
        >>> cell = rm.LSTMCell.of(layer)
        >>> cell.weight_hh is layer.weight_hh_l0
        True
    """

    layer: ClassVar[type[Recurrent]] = LSTM

    @completed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        proj_size: int = 0,
        gate: str | Gate = "sigmoid",
        input_gate: InputGate | None = None,
        **shared: Unpack[StepKeywords],
    ) -> None:
        made = LSTM(input_size, hidden_size, bias=bias, proj_size=proj_size, gate=gate, input_gate=input_gate, **shared)
        super().__init__(made, FIRST)


class PowerLawLSTMCell(LSTMCell):
    """A single step of `remanence.PowerLawLSTM`: `h, c, age = cell(input, (h, c, age), dt)`.

    Args:
        p: Exponent of the decay; None learns one per unit.
        eps: Keeps the gradient finite at a full reset, see `remanence.gates.PowerLaw`.
        reset_age: Age after a full reset, see `remanence.gates.PowerLaw`.
        input_gate: "coupled" or "separate".

    All other arguments are those of `LSTMCell`.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> cell = rm.PowerLawLSTMCell(3, 16)
        >>> h, c, age = cell(torch.randn(4, 3), dt=0.5)
        >>> age.shape
        torch.Size([4, 16])
    """

    layer = PowerLawLSTM

    @completed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        proj_size: int = 0,
        p: float | None = None,
        eps: float = 1e-3,
        reset_age: float = 0.0,
        input_gate: InputGate = "coupled",
        **shared: Unpack[StepKeywords],
    ) -> None:
        made = PowerLawLSTM(
            input_size,
            hidden_size,
            bias=bias,
            proj_size=proj_size,
            p=p,
            eps=eps,
            reset_age=reset_age,
            input_gate=input_gate,
            **shared,
        )
        RecurrentCell.__init__(self, made, FIRST)


class GRUCell(RecurrentCell):
    """A single step of `remanence.GRU`: `h = cell(input, h)`. With the default gate, `torch.nn.GRUCell`.

    With power_law it is `h, age = cell(input, (h, age), dt)`. Arguments are those of `LSTMCell`, without `proj_size`
    and `input_gate`.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> cell = rm.GRUCell(8, 32)
        >>> h = cell(torch.randn(4, 8))
        >>> h.shape
        torch.Size([4, 32])
    """

    layer = GRU

    @completed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        gate: str | Gate = "sigmoid",
        **shared: Unpack[StepKeywords],
    ) -> None:
        super().__init__(GRU(input_size, hidden_size, bias=bias, gate=gate, **shared), FIRST)


class JANETCell(RecurrentCell):
    """A single step of `remanence.JANET`: `h, c = cell(input, (h, c))`; with power_law the state is `(h, c, age)`.

    Args:
        t_max: Longest dependency expected, see `remanence.JANET`.
        beta: How much more is written than forgotten, see `remanence.JANET`.

    All other arguments are those of `GRUCell`.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> cell = rm.JANETCell(8, 32, t_max=100)
        >>> h, c = cell(torch.randn(4, 8))
        >>> h.shape
        torch.Size([4, 32])
    """

    layer = JANET

    @completed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        t_max: float | None = None,
        beta: float = 1.0,
        gate: str | Gate = "sigmoid",
        **shared: Unpack[StepKeywords],
    ) -> None:
        made = JANET(input_size, hidden_size, bias=bias, t_max=t_max, beta=beta, gate=gate, **shared)
        super().__init__(made, FIRST)

    def extra_repr(self) -> str:
        beta = getattr(self.cell, "beta", 1)
        return super().extra_repr() + ("" if beta == 1 else f", beta={beta}")
