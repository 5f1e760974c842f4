"""Dropout for recurrent networks: one mask for a whole sequence, and dropped recurrent weights.

When a batch is split over processes, every process must drop what a single process with the whole batch would drop.
Masks are therefore drawn for the whole batch, so that all generators stay in sync, and each process takes its part.
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
"""If a batch is part of a larger one: index of its first sequence there, and size of the larger batch."""


@contextmanager
def part_of_batch(first: int, whole: int) -> Iterator[None]:
    """Treat batches as the sequences from `first` on of larger batches of `whole` sequences."""
    global _PART
    before, _PART = _PART, (first, whole)
    try:
        yield
    finally:
        _PART = before


def drop(values: Tensor, p: float, training: bool = True, batch: int = -2) -> Tensor:
    """Dropout as in torch, with the batch in dimension `batch`, see `part_of_batch`."""
    if _PART is None or not training or p == 0:
        return dropout(values, p, training)
    first, whole = _PART
    shape = list(values.shape)
    shape[batch] = whole
    return values * dropout(values.new_ones(shape), p).narrow(batch, first, values.shape[batch])


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` for values `(..., B, features)`, see `part_of_batch`."""

    def forward(self, input: Tensor) -> Tensor:
        return drop(input, self.p, self.training)


def drop_weights(weight: Tensor, p: float, training: bool) -> Tensor:
    """The matrix with entries dropped with probability p and the rest scaled by 1/(1 - p); one draw per call.

    This is an ordinary operation on the stored matrix, so gradients reach it. (Published code wraps the result in a new
    parameter, which leaves the stored matrix untrained.)
    """
    return dropout(weight, p, training) if p > 0 and training else weight


class LockedDropout(nn.Module):
    """Variational dropout: one mask per sequence, the same at every step.

    Gal & Ghahramani, "A theoretically grounded application of dropout in recurrent neural networks" (2016).

    Args:
        p: Probability that a feature is dropped.
        batch_first: Whether the input is `(B, T, features)` instead of `(T, B, features)`.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> dropped = rm.LockedDropout(0.5)(torch.ones(100, 4, 8))
        >>> torch.equal(dropped[0], dropped[99])
        True
    """

    def __init__(self, p: float = 0.5, batch_first: bool = False) -> None:
        super().__init__()
        self.p = expect_probability("p", p)
        self.batch_first = batch_first

    def forward(self, input: Tensor | PackedSequence) -> Tensor | PackedSequence:
        """Drop features in training mode; in evaluation mode return the input unchanged.

        Args:
            input: `(T, B, features)`, `(B, T, features)` with batch_first, `(T, features)` unbatched, or a
                PackedSequence.

        Returns:
            The input with some features zero and the rest scaled by 1/(1 - p), in the same layout.
        """
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
