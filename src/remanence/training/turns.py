"""Loops that take turns: one update of each, until all have ended.

Some runs cannot be stacked in one launch: language models with chunks of random lengths, different models. One after
another they would leave much of a GPU idle: the recurrence of 20 sequences uses a third of it. In turns, each with its
own CUDA stream, their kernels run at the same time. Every run still does exactly what it does alone, bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Protocol

import torch

from .interruption import Stopped


class Turns(Protocol):
    """What takes turns: a `Loop`."""

    def updates(self) -> Generator[None]:
        """Train until the end; yields after every update."""

    def stop(self) -> Stopped:
        """Save everything; the exception to raise."""


def take_turns(starts: Sequence[Callable[[], Turns]], device: torch.device) -> None:
    """Start loops, and let them take turns until all have ended.

    Args:
        starts: Functions that start one loop each.
        device: Device to train on. On a GPU several loops have a stream each.

    Raises:
        Stopped: One of them had to stop. All have saved everything.
    """
    waiting = deque(_Seat(start, _stream(device) if len(starts) > 1 else None) for start in starts)
    while waiting:
        seat = waiting.popleft()
        try:
            ended = seat.take_turn()
        except Stopped:
            for other in waiting:
                other.stop()
            raise
        if not ended:
            waiting.append(seat)


class _Seat:
    """A loop and its stream."""

    def __init__(self, start: Callable[[], Turns], stream: torch.cuda.Stream | None) -> None:
        self.stream = stream
        with torch.cuda.stream(stream):
            self.loop = start()
        self.turns = self.loop.updates()

    def take_turn(self) -> bool:
        """Do one update, with what comes before it; returns whether the loop has ended."""
        with torch.cuda.stream(self.stream):
            try:
                next(self.turns)
            except StopIteration:
                return True
        return False

    def stop(self) -> None:
        """Save everything, because another loop was stopped."""
        with torch.cuda.stream(self.stream):
            self.loop.stop()
            self.turns.close()


def _stream(device: torch.device) -> torch.cuda.Stream | None:
    """A new stream that begins when the work of the current one is done; None on a CPU."""
    if device.type != "cuda":
        return None
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream
