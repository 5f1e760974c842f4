"""What a layer and a single step have in common: a cell with its weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..cells import BuiltCell, Cell, GatedCell
from ..gates import Gate
from ..timescales import Timescales
from . import biases
from .biases import ForgetBias
from .dropout import drop_weights
from .place import Place


class NoForgetGateError(ValueError, AttributeError):
    """A layer without a forget gate was asked for it: a wrong value, and a missing attribute (`hasattr` is False)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(f"expected a layer with a forget gate, got {type(layer).__name__}, which has none")


class Weighted(nn.Module):
    """A cell with weights, in one or several places. A subclass registers them and says how they are run."""

    cell: Cell
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    proj_size: int
    weight_drop: float
    forget_bias: ForgetBias
    timescales: tuple[Timescales | None, ...]
    engine: str
    _names: tuple[str, ...]
    _recurrence: Cell

    @property
    def places(self) -> list[Place]:
        """Where its weights are."""
        raise NotImplementedError

    @property
    def output_size(self) -> int:
        """Width of the hidden state of one direction."""
        return self.proj_size or self.hidden_size

    @property
    def recurrence(self) -> Cell:
        """The cell that engines run: its own, or the one whose matrix its own builds."""
        return self._recurrence if isinstance(self.cell, BuiltCell) else self.cell

    @property
    def gate(self) -> Gate:
        """The forget gate."""
        if not isinstance(self.recurrence, GatedCell):
            raise NoForgetGateError(self)
        return self.recurrence.gate

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

    def _find_recurrence(self) -> None:
        """Keep the cell that engines run: what they note on it is not to be found out again with every call."""
        if isinstance(self.cell, BuiltCell):
            self._recurrence = self.cell.recurrence

    @property
    def _learns_start(self) -> bool:
        return isinstance(self.cell, BuiltCell) and self.cell.start is not None

    def _start(self, place: Place) -> Tensor | None:
        """The hidden state before the first step, `(H,)`, where that is learned."""
        if not isinstance(self.cell, BuiltCell) or self.cell.start is None:
            return None
        start: Tensor = getattr(self, self.cell.start + place.suffix)
        return start

    def _weights(self, place: Place, dtype: torch.dtype) -> dict[str, Tensor]:
        """Weights of one layer and direction as they act now: frozen, built, dropped, cast to the dtype of products."""
        suffix, held = place.suffix, self._parameters
        weights: dict[str, Tensor] = {}
        for name in self._names:
            found = held.get(name + suffix)  # `getattr` takes four times as long, and knows of parametrisations
            weights[name] = getattr(self, name + suffix) if found is None else found
        if self.timescales[place.layer] is not None:
            weights.update(biases.acting(self, place))
        if isinstance(self.cell, BuiltCell):
            weights = self.cell.built(weights)
        if self.weight_drop > 0:
            weights["weight_hh"] = drop_weights(weights["weight_hh"], self.weight_drop, self.training)
        for name, weight in weights.items():
            if weight.dtype != dtype and weight.dim() == 2:
                weights[name] = weight.to(dtype)
        return weights

    def _product_dtype(self, values: Tensor) -> torch.dtype:
        """The dtype of the matrix products: that of the weights, or autocast's."""
        own: torch.dtype = getattr(self, self._names[0] + self.places[0].suffix).dtype
        device = values.device.type
        if device != "meta" and torch.is_autocast_enabled(device) and own != torch.float64:
            return torch.get_autocast_dtype(device)
        if values.dtype != own:
            raise ValueError(f"expected input of dtype {own} like the weights, got {values.dtype}")
        return own

    def _expect_use_of_dt(self, dt: object) -> None:
        if dt is not None and not self.cell.takes_dt:
            raise ValueError(f"expected no dt, got one: {self._describe()} has no use for the time between steps")

    def _describe(self) -> str:
        if isinstance(self.recurrence, GatedCell):
            return f"{type(self).__name__} with gate {self.gate.name!r}"
        return type(self).__name__
