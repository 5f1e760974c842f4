"""One step as a module, with the manners of `torch.nn.LSTMCell`, and weights of its own or of a layer."""

from __future__ import annotations

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
from .sequence import as_times, expect_features, expect_state, expect_times
from .weighted import Weighted


class Alone(Place):
    """A place whose weights have no suffix: of a step, the only one."""

    @property
    def suffix(self) -> str:
        return ""


class RecurrentCell(Weighted):
    """One step of a layer: `state = cell(input, state, dt)`.

    Users build `LSTMCell`, `GRUCell`, `JANETCell` or `PowerLawLSTMCell`, or one `of` a layer. Parameters have the names
    of the layer's without `_l0`: those of `torch.nn.LSTMCell` and `torch.nn.GRUCell`, whose `state_dict` they load.
    """

    cell: GatedCell
    layer: ClassVar[type[Recurrent]]
    """Of what it is a step."""

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
        for name in self._names:
            self.register_parameter(name, layer.get_parameter(name + place.suffix))
        for name, buffer in layer.named_buffers():
            if name.endswith(place.suffix):
                self.register_buffer(name.removesuffix(place.suffix), buffer)
        self.train(layer.training)

    @classmethod
    def of(cls, layer: Recurrent, layer_index: int = 0, reverse: bool = False) -> Self:
        """A step of a layer, whose weights it shares: what one of them learns, the other knows.

        Dropout between layers and of weights is the layer's alone.

        Args:
            layer: of the kind that this is a step of.
            layer_index: which of stacked layers.
            reverse: whether that of the pass from the end.
        """
        if not isinstance(layer, cls.layer):
            raise TypeError(f"expected layer to be a remanence.{cls.layer.__name__}, got {type(layer).__name__}")
        if isinstance(layer_index, bool) or not isinstance(layer_index, int) or not 0 <= layer_index < layer.num_layers:
            raise ValueError(f"expected layer_index to be in [0, {layer.num_layers}), got {layer_index!r}")
        if reverse and not layer.bidirectional:
            raise ValueError("expected reverse=False for a layer of one direction, got True")
        made = cls.__new__(cls)
        RecurrentCell.__init__(made, layer, Place(layer_index, bool(reverse)))
        return made

    @property
    def places(self) -> list[Place]:
        """Where its weights are."""
        return [self._place]

    def forward(self, input: Tensor, hx: State | None = None, dt: Any = None) -> State:
        """Go one step.

        Args:
            input: `(B, I)`, or `(I,)` unbatched.
            hx: state before the step, as returned; zeros if None.
            dt: time since the previous step, `(B,)` or a number; None for a unit step.

        Returns:
            State after the step, `(B, width)` each, hidden first; of a GRU whose gate carries nothing, a tensor.
        """
        state = None
        if dt is None and self.engine != "loop" and not torch.is_grad_enabled():
            given = (hx,) if isinstance(hx, Tensor) else hx
            known = given is None or (isinstance(given, tuple) and all(isinstance(part, Tensor) for part in given))
            own = getattr(self, self._names[0] + self._place.suffix).dtype
            if known and type(input) is Tensor and 0 < input.dim() < 3 and input.dtype == own:
                state = engines.quick_step(self.cell, self._weights(self._place, input.dtype), input, given, None)
        if state is None:
            state = self._step(input, hx, dt)
        return state[0] if len(state) == 1 else state

    def _step(self, input: Tensor, hx: State | None, dt: Any) -> tuple[Tensor, ...]:
        """The way that takes everything, and refuses what it must."""
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
        given = self._weights(self._place, dtype), values, state, None if dt is None else self._expect_dt(dt, values)
        if self.engine == "loop":
            after = engines.equation(self.cell, *given)
        else:
            after = engines.quick_step(self.cell, *given) or engines.step(self.cell, *given)
        return after if input.dim() == 2 else tuple(part.squeeze(0) for part in after)

    def _expect_dt(self, dt: Any, values: Tensor) -> Tensor:
        """Times as `(B,)`."""
        times = as_times(dt).to(values.device, wide(values.dtype))
        if tuple(times.shape) not in ((), (len(values),)):
            raise ValueError(f"expected dt of shape ({len(values)},) or a number, got {tuple(times.shape)}")
        return expect_times(times.expand(len(values)).contiguous())

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
    """One step of `remanence.LSTM`: `h, c = cell(input, (h, c))`; without further keywords, `torch.nn.LSTMCell`.

    Args:
        input_size: number of input features.
        hidden_size: number of units.
        bias: whether there are biases.
        proj_size: width of the projected hidden state; 0 for none.
        gate: "sigmoid", "fast", "softsign", "refine", "ur", "power_law", or an object of `remanence.gates`. What a
            gate carries is part of the state: `h, c, age = cell(input, (h, c, age), dt)` with power_law.
        input_gate: "separate" or "coupled"; None takes what the gate prefers.
        forget_bias: as in `remanence.LSTM`.
        timescales: as in `remanence.LSTM`.
        engine: "loop" for the equation as it stands; all others for the shortest way there is.
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
    """One step of `remanence.PowerLawLSTM`: `h, c, age = cell(input, (h, c, age), dt)`.

    `p`, `eps`, `reset_age` and `input_gate` are those of the layer, all other arguments those of `LSTMCell`.
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
    """One step of `remanence.GRU`: `h = cell(input, h)`; without further keywords, `torch.nn.GRUCell`.

    With power_law `h, age = cell(input, (h, age), dt)`. Arguments are those of `LSTMCell` that a GRU has.
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
    """One step of `remanence.JANET`: `h, c = cell(input, (h, c))`; with power_law `(h, c, age)`.

    `t_max` and `beta` are those of the layer, all other arguments those of `GRUCell`.
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
