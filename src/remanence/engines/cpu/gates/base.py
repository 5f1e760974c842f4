"""What a gate contributes to the engine: one step, and its slopes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ....cells import Weights
from ....gates import Gate
from ..buffers import Scratch


class Reading(NamedTuple):
    """What a gate reads and writes: at one step, `(B, H)` each, or over a stretch, `(steps, B, H)` each.

    At one step everything but `before`, `units` and `dt` is to be written; over a stretch everything is to be read.
    """

    rows: tuple[Tensor, ...]
    """The gate's pre-activations, times `signs`, those in `logistic` already through the sigmoid. What a step leaves
    here is what the backward pass finds here."""
    before: tuple[Tensor, ...]
    """The gate's state before the step."""
    after: tuple[Tensor, ...]
    """The gate's state after the step."""
    kept: tuple[Tensor, ...]
    """What else it wants to find again in the backward pass."""
    units: Mapping[str, Tensor]
    """Its per-unit weights, `(H,)` each."""
    dt: Tensor | None
    """`(B, 1)` or `(steps, B, 1)`; None for unit steps."""


class Decision(NamedTuple):
    """What a gate decides, in the shape of what it read."""

    forget: Tensor
    complement: Tensor | None = None
    """One minus it, where the gate was made with `complement`."""

    @property
    def written(self) -> Tensor:
        """The complement, by one who knows that it is there."""
        assert self.complement is not None
        return self.complement


@dataclass(frozen=True)
class Slopes:
    """Partial derivatives that a gate fills in for a stretch, each `(steps, B, H)`.

    Sources are the names of its rows, of its state before the step, of its per-unit weights, and "dt". Where a source
    is missing, nobody asks for its gradient. Derivatives of the complement are those of the forget value, negative.
    """

    forget: Mapping[str, Tensor]
    """Of the forget value, by source."""
    state: Mapping[str, Mapping[str, Tensor]]
    """Of each part of the state after the step, by source."""


class GateKernel(ABC):
    """The two functions of a gate.

    Args:
        gate: the gate whose equations these are.
        complement: whether `1 - forget` is needed, precise where forget rounds to one.
        dt: whether times between steps are given.
        dtype: of all tensors.
    """

    kept: ClassVar[tuple[str, ...]] = ()
    """Names of what else it keeps for the backward pass."""
    depends: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """For every part of its state, the sources that part depends on (besides dt)."""

    def __init__(self, gate: Gate, complement: bool, dt: bool, dtype: torch.dtype) -> None:
        self.gate = gate
        self.complement = complement
        self.dt = dt
        self.dtype = dtype

    @property
    def signs(self) -> tuple[int, ...]:
        """The factor, 1 or -1, with which the engine hands over each row. It costs nothing: weights are turned."""
        return (1,) * len(self.gate.rows)

    @property
    def logistic(self) -> tuple[bool, ...]:
        """Which rows come through the sigmoid, in one call with those of the cell."""
        return (False,) * len(self.gate.rows)

    def units(self, weights: Weights) -> dict[str, Tensor]:
        """Per-unit weights as the functions use them, made of the layer's by operations that autograd knows."""
        return {}

    @abstractmethod
    def step(self, read: Reading, scratch: Scratch) -> Decision:
        """One step, in place."""

    @abstractmethod
    def slopes(self, read: Reading, slopes: Slopes, scratch: Scratch) -> Decision:
        """Derivatives of all steps of a stretch, and what was decided at them."""
