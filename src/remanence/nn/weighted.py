"""The common base of layers and single-step cells: a cell with its weights."""

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
    """Raised by `layer.gate` if there is no forget gate. An AttributeError as well, so that `hasattr` is False."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(f"expected a layer with a forget gate, got {type(layer).__name__}, which has none")


class Weighted(nn.Module):
    """A cell with weights, in one or several places. Subclasses register the weights and define `forward`."""

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
        """Layers and directions that have weights."""
        raise NotImplementedError

    @property
    def output_size(self) -> int:
        """Width of the hidden state of one direction."""
        return self.proj_size or self.hidden_size

    @property
    def recurrence(self) -> Cell:
        """The cell that engines run: `cell`, or for a cell that builds its matrix, the cell that uses the matrix."""
        return self._recurrence if isinstance(self.cell, BuiltCell) else self.cell

    @property
    def gate(self) -> Gate:
        """The forget gate."""
        if not isinstance(self.recurrence, GatedCell):
            raise NoForgetGateError(self)
        return self.recurrence.gate

    def forget_biases(self) -> list[tuple[Tensor, ...]]:
        """The total biases of the gate for every layer and direction: one `(H,)` tensor per row of the gate."""
        return [biases.of_gate(self, place) for place in self.places]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reinitialise all weights: U(-1/sqrt(H), 1/sqrt(H)) as in torch, then as cell, gate and timescales specify."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            parameter.uniform_(-bound, bound)
        for place in self.places:
            self.cell.initialise({name: getattr(self, name + place.suffix) for name in self._names})
            biases.initialise(self, place)

    def _find_recurrence(self) -> None:
        """Store the cell that engines run, because they cache their analysis on it."""
        if isinstance(self.cell, BuiltCell):
            self._recurrence = self.cell.recurrence

    @property
    def _learns_start(self) -> bool:
        return isinstance(self.cell, BuiltCell) and self.cell.start is not None

    def _start(self, place: Place) -> Tensor | None:
        """The initial hidden state, `(H,)`, if it is learned."""
        if not isinstance(self.cell, BuiltCell) or self.cell.start is None:
            return None
        start: Tensor = getattr(self, self.cell.start + place.suffix)
        return start

    def _weights(self, place: Place, dtype: torch.dtype) -> dict[str, Tensor]:
        """The effective weights of one layer and direction: frozen, built, dropped, and cast to the matmul dtype."""
        suffix = place.suffix
        weights = {name: self._weight(name + suffix) for name in self._names}
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

    def _stored_weights(self, place: Place) -> dict[str, Tensor]:
        """The effective weights of one layer and direction, in the dtype of its first weight."""
        return self._weights(place, self._weight(self._names[0] + place.suffix).dtype)

    def _weight(self, name: str) -> Tensor:
        """A weight by its full name. `getattr`, which handles parametrizations, takes four times as long."""
        found: Tensor | None = self._parameters.get(name)
        return getattr(self, name) if found is None else found

    def _product_dtype(self, values: Tensor) -> torch.dtype:
        """The dtype of the matmuls: that of the weights, or autocast's."""
        own = self._weight(self._names[0] + self.places[0].suffix).dtype
        if torch._C._is_any_autocast_enabled() and own != torch.float64:
            device = values.device.type
            if device != "meta" and torch.is_autocast_enabled(device):
                return torch.get_autocast_dtype(device)
        if values.dtype != own:
            raise ValueError(f"expected input of dtype {own} like the weights, got {values.dtype}")
        return own

    def _expect_use_of_dt(self, dt: object) -> None:
        if dt is not None and not self.cell.takes_dt:
            raise ValueError(f"expected no dt, got one: {self._describe()} does not use the time between steps")

    def _describe(self) -> str:
        if isinstance(self.recurrence, GatedCell):
            return f"{type(self).__name__} with gate {self.gate.name!r}"
        return type(self).__name__
