"""What every cell has in common: the names and shapes of its weights and state, and one step in time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..gates import Forgetting, Gate

Weights = Mapping[str, Tensor]
"""The weights of one layer and direction by name, without the `_l0` of the layer."""


NOTED = ("_derivation", "_formulas", "_one_step", "_text")
"""What engines note on a cell or gate: no setting of it."""


class Step(NamedTuple):
    """What one step in time gives."""

    state: tuple[Tensor, ...]
    """The carried state, `(B, width)` each, hidden first."""
    seen: dict[str, Tensor]
    """Inner values worth recording, `(B, H)` each, by name."""


class Cell(ABC):
    """One step of a recurrent network. Immutable, and without tensors: weights and state come from outside."""

    name: ClassVar[str]
    projects: ClassVar[bool] = False
    """Whether `proj_size` makes sense for it."""

    def __getstate__(self) -> dict[str, Any]:
        """Without what engines have noted beside the settings: another process does not know it."""
        return {name: value for name, value in vars(self).items() if name not in NOTED}

    @property
    @abstractmethod
    def takes_dt(self) -> bool:
        """Whether the time between two steps matters to it."""

    @abstractmethod
    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        """Names and widths of the carried state, hidden first."""

    @abstractmethod
    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the weights, in the order of `torch.nn.LSTM`."""

    def initialise(self, weights: dict[str, Tensor]) -> None:  # noqa: B027  nothing to overwrite is a fine answer
        """Overwrite, in place, those of the freshly drawn U(-1/sqrt(H), 1/sqrt(H)) weights that start otherwise."""

    def project(self, inputs: Tensor, weights: Weights) -> Tensor:
        """What the inputs of all steps contribute, in one product: `(T, B, I)` to `(T, B, rows)`."""
        return affine(inputs, weights["weight_ih"], weights.get("bias_ih"))

    @abstractmethod
    def step(self, projected: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None) -> Step:
        """One step.

        Args:
            projected: `(B, rows)`, a slice of what `project` gave.
            state: the carried state, `(B, width)` each, float32 or wider.
            weights: matrices in the dtype of the products, everything else in any dtype.
            dt: time since the previous step, `(B, 1)`, or None for unit steps.
        """


class PointwiseCell(Cell):
    """A cell whose step is one recurrent product and a pointwise update.

        z_t = (W x_t + b) + (R h_{t-1} + b'),    state_t = pointwise(z_t, state_{t-1})

    Engines need nothing but `blocks` and `pointwise`, of which those with kernels derive theirs, and its derivative.
    """

    @property
    @abstractmethod
    def blocks(self) -> tuple[str, ...]:
        """Names of the H-row blocks of `weight_ih` and `weight_hh`, in order."""

    @abstractmethod
    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        """The update given both halves of the pre-activations, `(B, blocks * H)` each."""

    def step(self, projected: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None) -> Step:
        recurrent = affine(state[0], weights["weight_hh"], weights.get("bias_hh"))
        state, seen = self.pointwise(projected, recurrent, state, weights, dt)
        if "weight_hr" in weights:
            state = (affine(state[0], weights["weight_hr"], None), *state[1:])
        return Step(state, seen)

    def rows(self, pre: Tensor) -> dict[str, Tensor]:
        """Pre-activations by block: `(B, blocks * H)` to `(B, H)` each."""
        return dict(zip(self.blocks, pre.chunk(len(self.blocks), -1), strict=True))


class GatedCell(PointwiseCell):
    """A pointwise update around a forget gate.

    LSTM, GRU and JANET have updates by hand around a derived gate where that measured faster.
    """

    gate: Gate

    @property
    def takes_dt(self) -> bool:
        return self.gate.takes_dt

    @property
    def two_biases(self) -> bool:
        """Whether there is a `bias_hh` beside `bias_ih`."""
        return self.gate.two_biases

    @property
    def biased(self) -> tuple[str, ...]:
        """The blocks that have a bias where there are biases: the first ones."""
        return self.blocks

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return {"hidden": output_size, "cell": hidden_size} | dict.fromkeys(self.gate.carries, hidden_size)

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        rows = len(self.blocks) * hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, input_size), "weight_hh": (rows, output_size)}
        if bias:
            shapes["bias_ih"] = (rows,)
            if self.two_biases:
                shapes["bias_hh"] = (rows,)
        if output_size != hidden_size:
            shapes["weight_hr"] = (output_size, hidden_size)
        return shapes | dict.fromkeys(self.gate.per_unit, (hidden_size,))

    def initialise(self, weights: dict[str, Tensor]) -> None:
        units = weights["weight_hh"].shape[0] // len(self.blocks)
        for name, value in self.gate.parameters(units).items():
            weights[name].copy_(value)

    def forgetting(
        self, rows: dict[str, Tensor], carried: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Forgetting:
        """The gate's decision from the rows that belong to it."""
        return self.gate(tuple(rows[name] for name in self.gate.rows), carried, weights, dt)


class BuiltCell(Cell):
    """A cell whose recurrent matrix is built of fewer numbers than it has entries: orthogonal, or unitary.

    `shapes` and `initialise` are of what a layer stores. Once a call, `built` makes of it the weights of `recurrence`,
    the cell that engines run: a matrix like any other.
    """

    start: ClassVar[str | None] = None
    """Name of the weight that is the hidden state before the first step, where that is learned."""

    @property
    @abstractmethod
    def recurrence(self) -> PointwiseCell:
        """What engines run."""

    @abstractmethod
    def built(self, weights: Weights) -> dict[str, Tensor]:
        """The weights of `recurrence`, differentiable; its matrices are in float32 or wider."""

    def expect(self, hidden_size: int) -> None:
        """Refuse a number of units that the matrix cannot have."""

    @property
    def takes_dt(self) -> bool:
        return self.recurrence.takes_dt

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return self.recurrence.widths(hidden_size, output_size)

    def project(self, inputs: Tensor, weights: Weights) -> Tensor:
        return self.recurrence.project(inputs, self.built(weights))

    def step(self, projected: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None) -> Step:
        return self.recurrence.step(projected, state, self.built(weights), dt)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of gates and state: float32, or float64 where everything is."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def affine(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`values @ weight.T + bias`: the product in the dtype of the weight, the sum in float32 or wider.

    A bias of 8 has no neighbour within 0.03 in bfloat16: added there, it would swallow the product.
    """
    product = linear(values.to(weight.dtype), weight).to(wide(weight.dtype))
    return product if bias is None else product + bias.to(product.dtype)
