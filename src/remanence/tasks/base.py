"""What a task is: sequences to learn from, a loss, and scores.

R replicas (models trained side by side), T steps, B sequences, I inputs, O outputs. A source makes the batch of one
replica; `side_by_side` puts the batches of all replicas into one, with R in front of every shape.
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
    """Some sequences, padded at the end to T steps."""

    inputs: Tensor
    """`(T, B, I)`; `(T, B)` whole numbers where a task's inputs are symbols."""
    targets: Tensor
    """`(T, B)` for a read-out at every step, else `(B,)`; whole numbers for classes, floats for a regression.
    `(T, B, O)` floats where every output has a target of its own."""
    dt: Tensor | None = None
    """`(T, B)`: time since the previous step, for models that have a use for it; 1 where there is padding."""
    lengths: Tensor | None = None
    """`(B,)`: steps of every sequence; None where all have T. The read-out "last" is at step `lengths - 1`."""
    counts: Tensor | None = None
    """`(T, B)` booleans: the steps that count, where not all do; `(T, B, O)` where outputs differ in that."""
    groups: Tensor | None = None
    """`(B,)` whole numbers: a kind every sequence is of, for scores by kind (IMDB: its bin of length)."""
    mask: Tensor | None = None
    """`(T, B, I)` booleans: the values that were seen, where some are missing."""


def side_by_side(batches: Sequence[Batch]) -> Batch:
    """The batches of several replicas as one, with the replica first: `(R, T, B, I)` and so on."""

    def one(name: str) -> Tensor | None:
        values = [getattr(batch, name) for batch in batches]
        if values[0] is None:
            return None
        return values[0].unsqueeze(0) if len(values) == 1 else torch.stack(values)

    return Batch(**{field.name: one(field.name) for field in fields(Batch)})  # type: ignore[arg-type]


class Source(Protocol):
    """Where the sequences of one split come from, all on one device."""

    size: int | None
    """Number of sequences; None where new ones are made without end."""

    def pick(self, numbers: Tensor) -> Batch:
        """The sequences with these numbers, `(B,)` on the source's device. Only where there is a size."""

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        """New sequences. Only where there is no size."""


class Score(NamedTuple):
    """A sum and the number of things summed, `(R,)` float64 each, so that batches add up to a mean.

    The number may be zero (no sequence of that kind came): then there is no mean.
    """

    total: Tensor
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody needs here


class Task(ABC):
    """Something to learn. Arguments of a subclass are its dataclass fields: what a configuration may set."""

    name: ClassVar[str]
    readout: ClassVar[Readout]
    goal: ClassVar[str]
    """Name of the score that matters."""
    higher_is_better: ClassVar[bool] = True

    @property
    @abstractmethod
    def input_size(self) -> int:
        """Width of the inputs I."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Width of the read-out O."""

    @abstractmethod
    def source(self, split: Split, seed: int, device: torch.device) -> Source | None:
        """The sequences of a split for one seed; None where the task has no such split."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """What is minimised, a mean for every replica, `(R,)`.

        Args:
            outputs: `(R, T, B, O)` for a read-out at every step, else `(R, B, O)`.
            batch: batches side by side.
        """

    def counted(self, batch: Batch) -> Tensor:
        """How many things `loss` is a mean over, `(R,)`, or what is in proportion to it.

        The loss of a batch is the mean of the losses of its parts with these weights.

        Args:
            batch: batches side by side.
        """
        if batch.counts is not None:
            return batch.counts.flatten(1).sum(1)
        return torch.full(batch.inputs.shape[:1], batch.inputs.shape[2], device=batch.inputs.device)

    @abstractmethod
    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        """Sums for every replica: "loss", the goal, and more."""

    def derived(self, scores: dict[str, float]) -> dict[str, float]:
        """Further scores that follow from the means of the others, such as a perplexity from a loss."""
        return {}

    @property
    def references(self) -> dict[str, float]:
        """Levels to compare with, such as the loss of a model without memory, by name of score."""
        return {}
