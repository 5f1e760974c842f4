"""The interface of a task: sequences to learn from, a loss, and scores.

R replicas (models trained in parallel), T steps, B sequences, I inputs, O outputs. A source makes the batch of one
replica; `side_by_side` stacks the batches of all replicas, with R as the first dimension of every tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

Split = Literal["train", "validation", "test"]
Readout = Literal["every", "last"]


@dataclass(frozen=True)
class Batch:
    """A batch of sequences, padded at the end to T steps."""

    inputs: Tensor
    """`(T, B, I)`; `(T, B)` integers for tasks whose inputs are symbols."""
    targets: Tensor
    """`(T, B)` for a read-out at every step, else `(B,)`; integers for classes, floats for a regression.
    `(T, B, O)` floats if every output has its own target."""
    dt: Tensor | None = None
    """`(T, B)`: time since the previous step, for models that use it; 1 at padded steps."""
    lengths: Tensor | None = None
    """`(B,)`: length of every sequence; None if all have T steps. The read-out "last" is at step `lengths - 1`."""
    counts: Tensor | None = None
    """`(T, B)` booleans: the steps that count in the loss, if not all do; `(T, B, O)` if that differs by output."""
    groups: Tensor | None = None
    """`(B,)` integers: the group of every sequence, for scores per group (IMDB: its length bin)."""
    mask: Tensor | None = None
    """`(T, B, I)` booleans: true where a value was observed, if some are missing."""


def side_by_side(batches: Sequence[Batch]) -> Batch:
    """Stack the batches of several replicas into one, replica first: `(R, T, B, I)` and so on.

    Args:
        batches: Batches of the same shape, one per replica.
    """

    def one(name: str) -> Tensor | None:
        values = [getattr(batch, name) for batch in batches]
        if values[0] is None:
            return None
        return values[0].unsqueeze(0) if len(values) == 1 else torch.stack(values)

    return Batch(**{field.name: one(field.name) for field in fields(Batch)})  # type: ignore[arg-type]


class Source(Protocol):
    """The sequences of one split, on one device."""

    size: int | None
    """Number of sequences; None if new ones are generated without end."""

    def pick(self, numbers: Tensor) -> Batch:
        """The sequences with these indices, `(B,)` on the source's device. Only for sources with a size."""

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        """Generate new sequences. Only for sources without a size."""


class Score(NamedTuple):
    """A sum and its number of terms, `(R,)` float64 each, so that batches can be accumulated to a mean.

    The number may be zero (no sequence of that group occurred): then there is no mean.
    """

    total: Tensor
    """The sum, `(R,)`."""
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody needs here


class Task(ABC):
    """Base class of tasks. A subclass is a dataclass; its fields are the settings of a configuration."""

    name: ClassVar[str]
    readout: ClassVar[Readout]
    goal: ClassVar[str]
    """Name of the score that selects models and is reported first."""
    higher_is_better: ClassVar[bool] = True

    @property
    @abstractmethod
    def input_size(self) -> int:
        """Number of input features I."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Number of outputs O."""

    @abstractmethod
    def source(self, split: Split, seed: int, device: torch.device) -> Source | None:
        """The sequences of a split for one seed; None if the task has no such split."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The loss to minimise, a mean for every replica, `(R,)`.

        Args:
            outputs: `(R, T, B, O)` for a read-out at every step, else `(R, B, O)`.
            batch: stacked batches of all replicas.
        """

    def counted(self, batch: Batch) -> Tensor:
        """The number of terms that `loss` averages over, `(R,)`, or a value proportional to it.

        The loss of a batch is the mean of the losses of its parts, weighted by these numbers.

        Args:
            batch: stacked batches of all replicas.
        """
        if batch.counts is not None:
            return batch.counts.flatten(1).sum(1)
        return torch.full(batch.inputs.shape[:1], batch.inputs.shape[2], device=batch.inputs.device)

    @abstractmethod
    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        """Sums for every replica: "loss", the goal, and other scores."""

    def by_sequence(self, outputs: Tensor, batch: Batch) -> Score | None:
        """Sum and number of the losses of every sequence, `(R, B)` each; None for tasks that are not read in lanes."""
        return None

    def derived(self, scores: dict[str, float]) -> dict[str, float]:
        """Scores computed from the means of the others, such as perplexity from the loss."""
        return {}

    @property
    def references(self) -> dict[str, float]:
        """Baselines by name of score, such as the loss of a model without memory."""
        return {}

    @property
    def note(self) -> str:
        """How the data that was found differs from the usual; empty if it does not. Results contain it."""
        return ""
