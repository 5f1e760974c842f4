"""The base classes of cells: names and shapes of weights and state, and one time step."""

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
"""Attributes in which engines cache their analysis of a cell or gate. They are not settings."""


class Step(NamedTuple):
    """The result of one time step."""

    state: tuple[Tensor, ...]
    """The new state, `(B, width)` each, with the hidden state first."""
    seen: dict[str, Tensor]
    """Intermediate values to record, `(B, H)` each, by name."""


class Cell(ABC):
    """Base class of cells: one step of a recurrent network.

    A cell is immutable and holds no tensors; weights and state are arguments. `remanence.nn.Recurrent` runs it as a
    layer.
    """

    name: ClassVar[str]
    projects: ClassVar[bool] = False
    """Whether layers of this cell take `proj_size`."""

    def __getstate__(self) -> dict[str, Any]:
        """The settings, without the caches of engines, which are only valid in this process."""
        return {name: value for name, value in vars(self).items() if name not in NOTED}

    @property
    @abstractmethod
    def takes_dt(self) -> bool:
        """Whether the cell uses dt, the time between two steps."""

    @abstractmethod
    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        """Names and widths of the state, with the hidden state first."""

    @abstractmethod
    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the weights, in the order of `torch.nn.LSTM`."""

    def initialise(self, weights: dict[str, Tensor]) -> None:  # noqa: B027  most cells have nothing to overwrite
        """Overwrite in place the weights that should not keep their initial values from U(-1/sqrt(H), 1/sqrt(H))."""

    def project(self, inputs: Tensor, weights: Weights) -> Tensor:
        """Input projection of all steps in one matmul: `(T, B, I)` to `(T, B, rows)`."""
        return affine(inputs, weights["weight_ih"], weights.get("bias_ih"))

    @abstractmethod
    def step(self, projected: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None) -> Step:
        """Compute one step.

        Args:
            projected: `(B, rows)`, one step of the result of `project`.
            state: The state, `(B, width)` each, float32 or wider.
            weights: Weights by name; matrices in the matmul dtype, everything else in any dtype.
            dt: Time since the previous step, `(B, 1)`, or None for unit steps.

        Returns:
            The new state, and values to record.
        """


class PointwiseCell(Cell):
    """A cell whose step is one recurrent matmul and a pointwise update.

        z_t = (W x_t + b) + (R h_{t-1} + b'),    state_t = pointwise(z_t, state_{t-1})

    Engines only need `blocks` and `pointwise`: those with kernels derive the forward code and its gradients from it.
    """

    @property
    @abstractmethod
    def blocks(self) -> tuple[str, ...]:
        """Names of the H-row blocks of `weight_ih` and `weight_hh`, in order."""

    @abstractmethod
    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        """The update, given both summands of the pre-activations.

        Args:
            projected: Input part of the pre-activations, `W x_t + b`, `(B, blocks * H)`.
            recurrent: Recurrent part, `R h_{t-1} + b'`, `(B, blocks * H)`.
            state: The state, `(B, width)` each, float32 or wider.
            weights: Weights by name.
            dt: Time since the previous step, `(B, 1)`, or None for unit steps.

        Returns:
            The new state, and values to record.
        """

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

    Some kernels of LSTM, GRU and JANET have a hand-written update around the derived gate, where that measured faster.
    """

    gate: Gate

    @property
    def takes_dt(self) -> bool:
        return self.gate.takes_dt

    @property
    def two_biases(self) -> bool:
        """Whether there is a `bias_hh` in addition to `bias_ih`."""
        return self.gate.two_biases

    @property
    def biased(self) -> tuple[str, ...]:
        """The blocks that have a bias if the layer has biases. They are the first ones."""
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
        """The result of the gate, given the pre-activations by block."""
        return self.gate(tuple(rows[name] for name in self.gate.rows), carried, weights, dt)


class BuiltCell(Cell):
    """A cell whose orthogonal or unitary recurrent matrix is a function of fewer parameters.

    `shapes` and `initialise` describe the stored parameters. Once per forward call, `built` turns them into the weights
    of `recurrence`, the cell that engines run with an ordinary matrix.
    """

    start: ClassVar[str | None] = None
    """Name of the weight that is the initial hidden state, if that is learned."""

    @property
    @abstractmethod
    def recurrence(self) -> PointwiseCell:
        """The cell that engines run."""

    @abstractmethod
    def built(self, weights: Weights) -> dict[str, Tensor]:
        """The weights of `recurrence`, differentiable, with matrices in float32 or wider."""

    def expect(self, hidden_size: int) -> None:
        """Raise a ValueError if the matrix cannot have this many units."""

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
    """The dtype of gates and state: float64 if the weights are float64, else float32.

    Args:
        dtype: Dtype of the weights.
    """
    return torch.float64 if dtype == torch.float64 else torch.float32


def affine(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`values @ weight.T + bias`: the matmul in the dtype of the weight, the bias added in float32 or wider.

    In bfloat16 the values next to a bias of 8 are 0.03 away: added there, it would swallow the matmul.
    """
    product = linear(values.to(weight.dtype), weight).to(wide(weight.dtype))
    return product if bias is None else product + bias.to(product.dtype)
