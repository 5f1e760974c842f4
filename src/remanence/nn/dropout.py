"""Dropout for recurrent networks: one mask for a whole sequence, and dropped recurrent weights.

Where a batch is split over processes, each has to drop what one process with the whole batch would: masks are drawn for
the whole batch, so that all generators stay in step, and a process takes its part of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

from .expect import expect_probability

_PART: tuple[int, int] | None = None
"""Of a batch that is part of a larger one: its first sequence there, and how many sequences that has."""


@contextmanager
def part_of_batch(first: int, whole: int) -> Iterator[None]:
    """Let batches be those sequences, from `first` on, of batches of `whole` sequences."""
    global _PART
    before, _PART = _PART, (first, whole)
    try:
        yield
    finally:
        _PART = before


def drop(values: Tensor, p: float, training: bool = True, batch: int = -2) -> Tensor:
    """Torch's dropout of values whose dimension `batch` has the sequences: see `part_of_batch`."""
    if _PART is None or not training or p == 0:
        return dropout(values, p, training)
    first, whole = _PART
    shape = list(values.shape)
    shape[batch] = whole
    return values * dropout(values.new_ones(shape), p).narrow(batch, first, values.shape[batch])


class Dropout(nn.Dropout):
    """As torch's, of values `(..., B, features)`: see `part_of_batch`."""

    def forward(self, input: Tensor) -> Tensor:
        return drop(input, self.p, self.training)


def drop_weights(weight: Tensor, p: float, training: bool) -> Tensor:
    """The matrix with entries dropped with probability p, the rest scaled by 1/(1 - p); one draw per call.

    An ordinary operation on the stored matrix, so its gradient reaches that matrix. (Wrapping the result in a new
    parameter, as published code does, leaves the stored matrix untrained.)
    """
    return dropout(weight, p, training) if p > 0 and training else weight


class LockedDropout(nn.Module):
    """Dropout with one mask per sequence: what is dropped at one step is dropped at all of them.

    Gal & Ghahramani, "A theoretically grounded application of dropout in recurrent neural networks" (2016).

    Args:
        p: probability that a feature is dropped.
        batch_first: whether the input is `(B, T, features)` rather than `(T, B, features)`. Unbatched `(T, features)`
            and packed sequences are taken as well.
    """

    def __init__(self, p: float = 0.5, batch_first: bool = False) -> None:
        super().__init__()
        self.p = expect_probability("p", p)
        self.batch_first = batch_first

    def forward(self, input: Tensor | PackedSequence) -> Tensor | PackedSequence:
        if not self.training or self.p == 0:
            return input
        if isinstance(input, PackedSequence):
            sizes = input.batch_sizes.to(input.data.device)
            rows = torch.arange(int(sizes[0]), device=input.data.device)
            row = torch.cat([rows[:size] for size in input.batch_sizes.tolist()])
            mask = dropout(input.data.new_ones(len(rows), *input.data.shape[1:]), self.p)
            return input._replace(data=input.data * mask[row])
        time = 1 if self.batch_first and input.dim() > 2 else 0
        shape = list(input.shape)
        shape[time] = 1
        return input * drop(input.new_ones(shape), self.p, batch=-3 if time == 1 else -2)

    def extra_repr(self) -> str:
        return f"p={self.p}" + (", batch_first=True" if self.batch_first else "")
