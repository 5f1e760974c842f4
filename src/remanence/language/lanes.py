"""Layout of a token stream for truncated backpropagation: parallel lanes, read in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Chunk(NamedTuple):
    """Consecutive steps of all lanes, with the next token at each step as target."""

    inputs: Tensor
    """`(T, B)`, int64."""
    targets: Tensor
    """`(T, B)`, int64."""


def batches(tokens: NDArray[np.int32], batch: int, device: torch.device | str | None = None) -> Tensor:
    """Split a stream into `batch` parallel lanes of equal length; the remainder is dropped.

    Args:
        tokens: token ids, `(N,)`.
        batch: number of lanes, B.
        device: device of the result.

    Returns:
        `(N // B, B)`, int32.
    """
    if batch < 1:
        raise ValueError(f"expected batch to be at least 1, got {batch}")
    steps = len(tokens) // batch
    if steps < 2:
        raise ValueError(f"expected at least {2 * batch:,} tokens for a batch of {batch}, got {len(tokens):,}")
    # `array` copies, because torch needs a writable array.
    return in_lanes(torch.from_numpy(np.array(tokens[: steps * batch], np.int32)), batch).to(device)


def in_lanes(stream: Tensor, batch: int) -> Tensor:
    """The layout itself: `(N,)` as `(N // B, B)`, whose columns are consecutive parts of the stream."""
    steps = len(stream) // batch
    return stream[: steps * batch].view(batch, steps).T.contiguous()


def chunks(stream: Tensor, length: int | Sequence[int]) -> Iterator[Chunk]:
    """Iterate over consecutive chunks of a stream, each with its targets. The last chunk may be shorter.

    Args:
        stream: `(steps, B)`, from `batches`.
        length: steps of every chunk, or a list of lengths, as from `jittered_lengths`.
    """
    if isinstance(length, int) and length < 1:
        raise ValueError(f"expected length to be at least 1, got {length}")
    begin, last = 0, len(stream) - 1
    for steps in repeat(length) if isinstance(length, int) else length:
        end = min(begin + steps, last)
        if begin >= end:
            return
        yield Chunk(stream[begin:end].long(), stream[begin + 1 : end + 1].long())
        begin = end


def jittered_lengths(
    steps: int,
    generator: torch.Generator,
    base: int = 70,
    *,
    full: float = 0.95,
    deviation: float = 5.0,
    least: int = 5,
) -> list[int]:
    """Random chunk lengths of one epoch, so that chunks do not start at the same tokens in every epoch.

    As in AWD-LSTM: N(base, deviation), sometimes N(base / 2, deviation), truncated to an integer of at least `least`.
    The learning rate of a chunk is scaled by its length / base. The last length may exceed the remaining steps:
    `chunks` shortens it.

    Args:
        steps: length of the stream, whose last token is a target only.
        generator: the number of values drawn from it depends only on `steps` and `least`.
        base: the usual length.
        full: fraction of chunks around `base`.
        deviation: standard deviation.
        least: shortest length.
    """
    if least < 1:
        raise ValueError(f"expected least to be at least 1, got {least}")
    count = -(-(steps - 1) // least)  # enough, whatever is drawn
    if count < 1:
        return []
    device = generator.device
    usual = torch.rand(count, generator=generator, dtype=torch.float64, device=device) < full
    noise = torch.randn(count, generator=generator, dtype=torch.float64, device=device)
    lengths = (torch.where(usual, float(base), base / 2) + deviation * noise).long().clamp(min=least)
    needed = int((lengths.cumsum(0) < steps - 1).sum()) + 1
    return [int(length) for length in lengths[:needed].tolist()]
