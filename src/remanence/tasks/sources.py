"""Sources of sequences that are generated or looked up, and the base class of tasks that generate them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..nn.expect import expect_size
from .base import Batch, Source, Split, Task
from .expect import expect_size_or_none, expect_whole
from .generators import generator

Parts = tuple[Tensor, ...]
"""The compact data that sequences are made from. In every tensor the sequences are the last dimension: `(..., B)`.

For several replicas the replica is the first dimension, `(R, ..., B)`."""


class Synthetic(Task):
    """A task that generates its sequences from random numbers.

    `numbers` draws the random numbers, `made` turns them into compact parts, and `show` turns the parts into inputs and
    targets. A fixed set stores the parts and calls `show` for every batch.

    `made` and `show` count dimensions from the end, so that they also work on the stacked parts of several replicas and
    return a stacked batch. A few operations then serve all replicas and write directly into the shape that training
    reads.
    """

    train_size: int | None
    """Size of the fixed training set; None to generate new sequences without end."""
    validation_size: int
    test_size: int
    """0 for no test split."""

    @abstractmethod
    def numbers(self, count: int, generator: torch.Generator) -> Parts:
        """Draw the random numbers of `count` sequences on the generator's device, and only that: it runs per seed."""

    def made(self, numbers: Parts) -> Parts:
        """Turn random numbers into parts, each sequence from its own numbers: `(..., B)` or `(R, ..., B)`."""
        return numbers

    @abstractmethod
    def show(self, parts: Parts) -> Batch:
        """Turn parts into inputs and targets, each sequence from its own parts: `(..., B)` or `(R, ..., B)`.

        On a GPU this is captured into a CUDA graph together with the update, so it must not synchronise.
        """

    def make(self, count: int, generator: torch.Generator) -> Parts:
        """The parts of `count` new sequences."""
        return self.made(self.numbers(count, generator))

    def source(self, split: Split, seed: int, device: torch.device) -> Source | None:
        size = {"train": self.train_size, "validation": self.validation_size, "test": self.test_size}[split]
        if size is None:
            return Endless(self)
        return FixedSet(self.show, self.make(size, generator(seed, split, device))) if size else None

    def expect_sizes(self) -> None:
        """Check the sizes of the splits."""
        expect_size_or_none("train_size", self.train_size)
        expect_size("validation_size", self.validation_size)
        expect_whole("test_size", self.test_size)


class FixedSet:
    """A fixed set of sequences, stored as parts.

    Args:
        show: makes sequences from parts; the same function for all replicas of a task. Like `Synthetic.show` it counts
            dimensions from the end and does not synchronise with the device.
        parts: parts of all sequences.
    """

    def __init__(self, show: Callable[[Parts], Batch], parts: Parts) -> None:
        self.show = show
        self.parts = parts
        self.size: int | None = parts[0].shape[-1]

    def parts_of(self, numbers: Tensor) -> Parts:
        """The parts of the sequences with these indices."""
        return tuple(part.index_select(-1, numbers) for part in self.parts)

    def pick(self, numbers: Tensor) -> Batch:
        return self.show(self.parts_of(numbers))

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        raise refusal("pick", "draw")


class Endless:
    """New sequences of a synthetic task, generated on demand."""

    size: int | None = None

    def __init__(self, task: Synthetic) -> None:
        self.task = task

    def pick(self, numbers: Tensor) -> Batch:
        raise refusal("draw", "pick")

    def show(self, numbers: Parts) -> Batch:
        """The sequences made from these random numbers."""
        return self.task.show(self.task.made(numbers))

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        return self.show(self.task.numbers(count, generator))


def together(parts: Sequence[Parts]) -> Parts:
    """Stack the parts of several replicas with equally many sequences: `(R, ..., B)`."""
    return tuple(torch.stack(same) for same in zip(*parts, strict=True))


def refusal(has: str, got: str) -> TypeError:
    """The error of a source that does not support the method that was called."""
    kind = "has a fixed number of sequences" if has == "pick" else "makes new sequences"
    return TypeError(f"expected {has}() because this source {kind}, got {got}()")
