"""How a stream of tokens is laid out for training and read in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Chunk(NamedTuple):
    """Some steps of all lanes, and at each step the token that comes next."""

    inputs: Tensor
    """`(T, B)`, int64."""
    targets: Tensor
    """`(T, B)`, int64."""


def batches(tokens: NDArray[np.int32], batch: int, device: torch.device | str | None = None) -> Tensor:
    """A stream cut into `batch` lanes of equal length that run side by side; what does not fill them is dropped.

    Args:
        tokens: `(N,)`.
        batch: lanes, B.
        device: where to put it.

    Returns:
        `(N // B, B)`, int32.
    """
    if batch < 1:
        raise ValueError(f"expected batch to be at least 1, got {batch}")
    steps = len(tokens) // batch
    if steps < 2:
        raise ValueError(f"expected at least {2 * batch:,} tokens for a batch of {batch}, got {len(tokens):,}")
    # `array` copies: torch does not take what is read only.
    return in_lanes(torch.from_numpy(np.array(tokens[: steps * batch], np.int32)), batch).to(device)


def in_lanes(stream: Tensor, batch: int) -> Tensor:
    """The lay-out itself: `(N,)` as `(N // B, B)`, whose columns are one piece of the stream after the other."""
    steps = len(stream) // batch
    return stream[: steps * batch].view(batch, steps).T.contiguous()


def chunks(stream: Tensor, length: int | Sequence[int]) -> Iterator[Chunk]:
    """A stream in consecutive chunks, each with its targets. The last is cut to what is left.

    Args:
        stream: `(steps, B)`, of `batches`.
        length: steps of every chunk, or the steps of each, as of `jittered_lengths`.
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
    """Chunk lengths of one epoch that differ, so that chunks do not begin at the same tokens in every epoch.

    As AWD-LSTM: N(base, deviation), now and then N(base / 2, deviation), without the fraction, at least `least`. The
    learning rate of a chunk is scaled by its length / base. The last length may be more than is left: `chunks` cuts it.

    Args:
        steps: of the stream, whose last token is a target only.
        generator: how far it moves depends on `steps` and `least` alone.
        base: the usual length.
        full: share of chunks around `base`.
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
