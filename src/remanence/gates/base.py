"""What every forget gate has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor


class Forgetting(NamedTuple):
    """What a gate decides at one step, each tensor `(B, H)`."""

    forget: Tensor
    """How much of the cell stays."""
    complement: Tensor
    """`1 - forget`, computed so that it is right where `forget` rounds to one."""
    carried: tuple[Tensor, ...] = ()
    """The gate's own state after the step, in the order of `Gate.carries`."""
    seen: Mapping[str, Tensor] = MappingProxyType({})
    """Inner values worth recording, by name."""


class Gate(ABC):
    """A forget gate: pre-activations in, a forget value out.

    A gate is a small immutable object without tensors. What it learns per unit lives in the layer that uses
    it (`per_unit`), what it carries from step to step lives in the state (`carries`).

    To add a gate, write one file with a subclass and add it to `remanence.gates.KNOWN`. Only `name` and
    `__call__` are required; `logit` and `bias` give it timescales, `parameters` gives it weights of its own.
    """

    name: ClassVar[str]
    """The word a user writes: `LSTM(..., gate="name")`."""
    rows: ClassVar[tuple[str, ...]] = ("forget",)
    """The blocks of pre-activations it reads. The first takes the place of the LSTM's forget block, the others
    come after all blocks of the cell."""
    carries: ClassVar[tuple[str, ...]] = ()
    """Names of the state it carries along, `(B, H)` each, zero at the start."""
    takes_dt: ClassVar[bool] = False
    """Whether the time between two steps matters to it."""
    coupled: ClassVar[bool] = False
    """Whether `input = 1 - forget` unless the user says otherwise."""
    two_biases: ClassVar[bool] = True
    """Whether layers keep torch's `bias_hh` beside `bias_ih`."""
    matched: ClassVar[bool] = False
    """Whether units start at forget value sigmoid(1) = 0.731 unless the user says otherwise."""
    per_unit: tuple[str, ...] = ()
    """Names of the weights of its own, `(H,)` each."""

    @abstractmethod
    def __call__(
        self,
        pre: tuple[Tensor, ...],
        carried: tuple[Tensor, ...],
        weights: Mapping[str, Tensor],
        dt: Tensor | None,
    ) -> Forgetting:
        """One step.

        Args:
            pre: one `(B, H)` tensor of pre-activations per entry of `rows`, float32 or wider.
            carried: one `(B, H)` tensor per entry of `carries`, float32 or wider.
            weights: the layer's weights by name, those in `per_unit` among them.
            dt: time since the previous step, `(B, 1)`, or None for unit steps.
        """

    def slopes(
        self,
        pre: tuple[Tensor, ...],
        carried: tuple[Tensor, ...],
        weights: Mapping[str, Tensor],
        dt: Tensor | None,
    ) -> Mapping[str, Tensor]:
        """Derivatives of the forget value by some rows, by name, where a formula by hand is faster than a derived one.

        Arguments are those of `__call__`. Kernels use it in the place of what they would derive, after it has been held
        to autograd; none is needed.
        """
        return {}

    def kept(self, row: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]] | None:
        """What kernels may keep of the only row for the backward pass, where something else is nearer to the slopes.

        Returns:
            What is kept, and a function from it to forget value, complement, and derivative by the row; None for
            nothing but the row. Held to `__call__` and autograd before it is used.
        """
        return None

    def parameters(self, units: int) -> dict[str, Tensor]:
        """Freshly drawn values, float64 `(units,)`, for every name in `per_unit`."""
        return {}

    def initial_biases(self, units: int) -> tuple[Tensor, ...] | None:
        """Biases every new layer starts with, one float64 `(units,)` per row; None keeps torch's initialisation."""
        return self.matched_biases(units) if self.matched else None

    def matched_biases(self, units: int) -> tuple[Tensor, ...]:
        """Biases at which every unit's forget value is sigmoid(1), one float64 `(units,)` per row."""
        return self.complete(self.bias(torch.ones(units, dtype=torch.float64, device="cpu")))

    # From biases to timescales and back. A unit that hears nothing forgets by f = phi(b) a step, which is a
    # timescale of -1/log f. All conversions go through logit(f): it keeps every digit where f rounds to one.

    def logit(self, *biases: Tensor) -> Tensor:
        """`log(f / (1 - f))` of the forget value at these pre-activations, one per row."""
        raise ValueError(f"expected a gate with a timescale, got {self.name}, which defines none from its biases")

    def bias(self, logit: Tensor) -> Tensor:
        """The bias of the first row at which a unit forgets by `sigmoid(logit)`: the inverse of `logit`."""
        raise ValueError(f"expected a gate with a timescale, got {self.name}, which defines none from its biases")

    def complete(self, bias: Tensor) -> tuple[Tensor, ...]:
        """Biases of all rows that belong to this bias of the first row."""
        return (bias, *(torch.zeros_like(bias) for _ in self.rows[1:]))
