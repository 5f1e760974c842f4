"""The base class of forget gates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor


class Forgetting(NamedTuple):
    """The result of a gate at one step. Each tensor is `(B, H)`."""

    forget: Tensor
    """The fraction of the cell that is kept."""
    complement: Tensor
    """`1 - forget`, computed so that it stays accurate where `forget` rounds to one."""
    carried: tuple[Tensor, ...] = ()
    """The state of the gate after the step, in the order of `Gate.carries`."""
    seen: Mapping[str, Tensor] = MappingProxyType({})
    """Intermediate values to record, by name."""


class Gate(ABC):
    """Base class of forget gates. A gate maps pre-activations to a forget value.

    A gate is a small immutable object without tensors. Its learned per-unit parameters (`per_unit`) belong to the layer
    that uses it, and its recurrent state (`carries`) is part of the state of the layer.

    To add a gate, write a subclass and add it to `remanence.gates.KNOWN`. Only `name` and `__call__` are required;
    `logit` and `bias` define timescales, `parameters` initialises per-unit parameters. Every engine derives its kernels
    and their gradients from `__call__`.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> class Cubic(rm.gates.Gate):
        ...     name = "cubic"
        ...
        ...     def __call__(self, pre, carried, weights, dt):
        ...         (z,) = pre
        ...         logit = z + z**3
        ...         return rm.gates.Forgetting(torch.sigmoid(logit), torch.sigmoid(-logit))
        >>> layer = rm.LSTM(8, 32, gate=Cubic())
        >>> output, state = layer(torch.randn(100, 4, 8))
        >>> output.shape
        torch.Size([100, 4, 32])
    """

    name: ClassVar[str]
    """The name of the gate, as in `LSTM(..., gate="name")`."""
    rows: ClassVar[tuple[str, ...]] = ("forget",)
    """The blocks of pre-activations that the gate reads. The first replaces the LSTM's forget block, the others come
    after all blocks of the cell."""
    carries: ClassVar[tuple[str, ...]] = ()
    """Names of its recurrent state, `(B, H)` each, initially zero."""
    takes_dt: ClassVar[bool] = False
    """Whether the gate uses dt, the time between two steps."""
    coupled: ClassVar[bool] = False
    """Whether `input = 1 - forget` is the default."""
    two_biases: ClassVar[bool] = True
    """Whether layers have torch's `bias_hh` in addition to `bias_ih`."""
    matched: ClassVar[bool] = False
    """Whether the default initial forget value is sigmoid(1) = 0.731."""
    per_unit: tuple[str, ...] = ()
    """Names of its learned per-unit parameters, `(H,)` each."""

    @abstractmethod
    def __call__(
        self,
        pre: tuple[Tensor, ...],
        carried: tuple[Tensor, ...],
        weights: Mapping[str, Tensor],
        dt: Tensor | None,
    ) -> Forgetting:
        """Compute one step. Use pointwise torch operations only, without in-place changes.

        Args:
            pre: One `(B, H)` tensor of pre-activations per entry of `rows`, float32 or wider.
            carried: One `(B, H)` tensor per entry of `carries`, float32 or wider.
            weights: The layer's weights by name, including those in `per_unit`.
            dt: Time since the previous step, `(B, 1)`, or None for unit steps.

        Returns:
            Forget value, its complement, and the new state of the gate.
        """

    def slopes(
        self,
        pre: tuple[Tensor, ...],
        carried: tuple[Tensor, ...],
        weights: Mapping[str, Tensor],
        dt: Tensor | None,
    ) -> Mapping[str, Tensor]:
        """Optional hand-written derivatives of the forget value with respect to some rows, by name.

        Arguments are those of `__call__`. Kernels use these instead of derived gradients where that is faster, after
        checking them against autograd.
        """
        return {}

    def kept(self, row: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]] | None:
        """Optional value for kernels to save for the backward pass instead of the only row, to save recomputation.

        Args:
            row: Pre-activations of the only row.

        Returns:
            The value to save, and a function from it to forget value, complement, and derivative with respect to the
            row; None to save the row itself. Checked against `__call__` and autograd before it is used.
        """
        return None

    def parameters(self, units: int) -> dict[str, Tensor]:
        """Initial values, float64 `(units,)`, for every name in `per_unit`."""
        return {}

    def initial_biases(self, units: int) -> tuple[Tensor, ...] | None:
        """Initial biases of a new layer, one float64 `(units,)` per row; None keeps torch's initialisation."""
        return self.matched_biases(units) if self.matched else None

    def matched_biases(self, units: int) -> tuple[Tensor, ...]:
        """Biases at which every unit's forget value is sigmoid(1), one float64 `(units,)` per row."""
        return self.complete(self.bias(torch.ones(units, dtype=torch.float64, device="cpu")))

    # Conversion between biases and timescales. A unit without input keeps a fraction f = phi(b) per step, which is a
    # timescale of -1/log f. All conversions go through logit(f), which stays accurate where f rounds to one.

    def logit(self, *biases: Tensor) -> Tensor:
        """`log(f / (1 - f))` of the forget value f at these pre-activations, one per row."""
        raise ValueError(f"expected a gate with a timescale, got {self.name}, which defines none from its biases")

    def bias(self, logit: Tensor) -> Tensor:
        """The bias of the first row at which the forget value is `sigmoid(logit)`: the inverse of `logit`."""
        raise ValueError(f"expected a gate with a timescale, got {self.name}, which defines none from its biases")

    def complete(self, bias: Tensor) -> tuple[Tensor, ...]:
        """Biases of all rows, given the bias of the first row."""
        return (bias, *(torch.zeros_like(bias) for _ in self.rows[1:]))
