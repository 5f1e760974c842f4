"""Loops that take turns: one update of each, until all have ended.

Some runs cannot be stacked in one launch: different models, language models with chunks of random lengths. One after
another they would leave much of a GPU idle: a narrow recurrence uses a third of it. In turns, each with its
own CUDA stream, their kernels run at the same time. Every run still does exactly what it does alone, bit for bit.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from .interruption import Stopped

STREAMS = 8
"""Most streams: torch has 32, which graphs use too. Loops that share one wait for each other."""


class Turns(Protocol):
    """What takes turns: a `Loop`."""

    def updates(self) -> Generator[None]:
        """Train until the end; yields after every update."""

    def stop(self) -> Stopped:
        """Save everything; the exception to raise."""


def take_turns(starts: Sequence[Callable[[], Turns]], device: torch.device, most: int | None = None) -> None:
    """Start loops, and let them take turns until all have ended. When one ends, the next starts.

    Args:
        starts: Functions that start one loop each.
        device: Device to train on. On a GPU several loops have a stream each.
        most: Most loops that take turns at the same time; None for all.

    Raises:
        Stopped: One of them had to stop. All have saved everything.
    """
    left = deque(starts)
    free = deque(own_streams(device, min(len(starts), most or len(starts))))
    seats: deque[_Seat] = deque()
    try:
        while left or seats:
            seat = _Seat(left.popleft(), free.popleft()) if left and free else seats.popleft()
            if not seat.take_turn():
                seats.append(seat)
                continue
            free.append(seat.stream)
            del seat
            if left:
                give_back_memory(device)
    except Exception as error:
        lost = _stop(seats)
        if lost is not None and isinstance(error, Stopped):
            raise lost from None  # not everything is saved
        raise


def give_back_memory(device: torch.device) -> None:
    """Free the memory of loops that have ended: graphs have memory of their own, which nothing else can use."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _stop(seats: Iterable[_Seat]) -> Exception | None:
    """Let all save everything; the first error if some could not."""
    first = None
    for seat in seats:
        try:
            seat.stop()
        except Exception as error:
            first = first or error
    return first


class _Seat:
    """A loop and its stream."""

    def __init__(self, start: Callable[[], Turns], stream: torch.cuda.Stream | None) -> None:
        self.stream = stream
        with on(stream):
            self.loop = start()
        self.turns = self.loop.updates()

    def take_turn(self) -> bool:
        """Do one update, with what comes before it; returns whether the loop has ended."""
        with on(self.stream):
            try:
                next(self.turns)
            except StopIteration:
                return True
        return False

    def stop(self) -> None:
        """Save everything, because another loop was stopped."""
        with on(self.stream):
            self.loop.stop()
            self.turns.close()


def own_streams(device: torch.device, count: int) -> list[torch.cuda.Stream | None]:
    """New streams, which begin when the work of the current one is done; None on a CPU and for one loop alone."""
    if device.type != "cuda" or count < 2:
        return [None] * count
    streams = [torch.cuda.Stream(device) for _ in range(min(count, STREAMS))]  # type: ignore[no-untyped-call]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream(device))
    return [streams[number % STREAMS] for number in range(count)]


def on(stream: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    """Work on this stream. `torch.cuda.stream(None)` would initialise CUDA."""
    return nullcontext() if stream is None else torch.cuda.stream(stream)
