"""Sources of sequences that are computed or looked up, and the tasks that compute them."""

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
"""What some sequences are made from, kept as small as possible; in every tensor the sequences come last: `(..., B)`.

Those of several replicas have the replica in front of every shape, `(R, ..., B)`."""


class Synthetic(Task):
    """A task whose sequences are made from random numbers.

    `numbers` draws what is random about them, `made` turns it into parts, which are as small as possible, and `show`
    those into inputs and targets. A fixed set keeps the parts and shows them anew for every batch.

    `made` and `show` count dimensions from the end, so that they take what belongs to several replicas as well, and
    give a batch of them side by side: a few operations for all, each straight into the shape that training reads.
    """

    train_size: int | None
    """Training sequences, a fixed set; None to make new ones without end."""
    validation_size: int
    test_size: int
    """0 for no test split."""

    @abstractmethod
    def numbers(self, count: int, generator: torch.Generator) -> Parts:
        """Random numbers for so many sequences, on the generator's device, and no more: every seed has its own."""

    def made(self, numbers: Parts) -> Parts:
        """The parts of these sequences, each from its own numbers: `(..., B)` or `(R, ..., B)`."""
        return numbers

    @abstractmethod
    def show(self, parts: Parts) -> Batch:
        """Inputs and targets of these sequences, each from its own parts: `(..., B)` or `(R, ..., B)`.

        On a GPU this is recorded together with the update: it must not wait for the device.
        """

    def make(self, count: int, generator: torch.Generator) -> Parts:
        """The parts of so many new sequences."""
        return self.made(self.numbers(count, generator))

    def source(self, split: Split, seed: int, device: torch.device) -> Source | None:
        size = {"train": self.train_size, "validation": self.validation_size, "test": self.test_size}[split]
        if size is None:
            return Endless(self)
        return FixedSet(self.show, self.make(size, generator(seed, split, device))) if size else None

    def expect_sizes(self) -> None:
        """Check the numbers of sequences."""
        expect_size_or_none("train_size", self.train_size)
        expect_size("validation_size", self.validation_size)
        expect_whole("test_size", self.test_size)


class FixedSet:
    """A fixed number of sequences, kept as what they are made from.

    Args:
        show: makes sequences from their parts, the same for all replicas of a task. Like `Synthetic.show` it counts
            dimensions from the end, and does not wait for the device.
        parts: of all sequences.
    """

    def __init__(self, show: Callable[[Parts], Batch], parts: Parts) -> None:
        self.show = show
        self.parts = parts
        self.size: int | None = parts[0].shape[-1]

    def parts_of(self, numbers: Tensor) -> Parts:
        """What the sequences with these numbers are made from."""
        return tuple(part.index_select(-1, numbers) for part in self.parts)

    def pick(self, numbers: Tensor) -> Batch:
        return self.show(self.parts_of(numbers))

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        raise refusal("pick", "draw")


class Endless:
    """Sequences of a synthetic task that are made as they are needed."""

    size: int | None = None

    def __init__(self, task: Synthetic) -> None:
        self.task = task

    def pick(self, numbers: Tensor) -> Batch:
        raise refusal("draw", "pick")

    def show(self, numbers: Parts) -> Batch:
        """The sequences of these random numbers."""
        return self.task.show(self.task.made(numbers))

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        return self.show(self.task.numbers(count, generator))


def together(parts: Sequence[Parts]) -> Parts:
    """The parts of as many sequences of several replicas, side by side: `(R, ..., B)`."""
    return tuple(torch.stack(same) for same in zip(*parts, strict=True))


def refusal(has: str, got: str) -> TypeError:
    """The answer of a source that is asked for what it has not."""
    kind = "has a fixed number of sequences" if has == "pick" else "makes new sequences"
    return TypeError(f"expected {has}(), since this source {kind}, got {got}()")
