"""Language models that train in turns on one GPU, each on a CUDA stream of its own, against one alone.

An update is that of `language.py`. The training loop does the same with whole runs (`training/turns.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from . import language
from .language import TextShape, training_step
from .measure import Call, one
from .timings import Say

MODEL = "mts"
COUNTS = (1, 2, 3, 4)
UPDATES = 8
"""Updates of every model per measurement: the host must get ahead of the device."""
ROUNDS = 7


@dataclass(frozen=True)
class LanguageTurns:
    """Time of an update while several models of a kind train in turns."""

    corpus: str
    model: str
    count: int
    """Models in turns."""
    update_ms: float
    """Time of an update of one of them: time of all updates over their number."""
    alone_ms: float
    """The same for one model alone."""
    host_ms: float
    """Time that the host needs to launch an update of one of them; it cannot be faster."""

    @property
    def ratio(self) -> float:
        """Updates per second of all models over those of one alone."""
        return self.alone_ms / self.update_ms


def language_turns(device: torch.device, say: Say, units: int = 1150, vector: int = 400) -> Iterator[LanguageTurns]:
    """Measure every number of models on every text."""
    for corpus in language.CORPORA:
        say(f"language models in turns: {corpus.name}")
        yield from turns_on(corpus, device, units, vector)


def turns_on(corpus: TextShape, device: torch.device, units: int, vector: int) -> Iterator[LanguageTurns]:
    """Measure every number of models on one text."""
    streams = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in range(max(COUNTS))]  # type: ignore[no-untyped-call]
    steps = []
    for stream in streams:
        with torch.cuda.stream(stream):
            steps.append(training_step(corpus, MODEL, "auto", device, units, vector))
    calls = {count: in_turns(steps[:count], streams[:count]) for count in COUNTS}
    calls[max(COUNTS)]()
    times: dict[int, list[float]] = {count: [] for count in COUNTS}
    launches: dict[int, list[float]] = {count: [] for count in COUNTS}
    for _ in range(ROUNDS):
        for count, call in calls.items():
            times[count].append(one(call, device) / UPDATES / count)
            start = time.perf_counter()
            in_turns(steps[:count], streams[:count], 1)()  # one update each: no queue is full
            launches[count].append((time.perf_counter() - start) * 1e3 / count)
    for count in COUNTS:
        yield LanguageTurns(
            corpus.name, MODEL, count, median(times[count]), median(times[1]), host_ms=median(launches[count])
        )


def in_turns(steps: Sequence[Call], streams: Sequence[torch.cuda.Stream | None], updates: int = UPDATES) -> Call:
    """A call that does some updates of every model, in turns; the current stream waits for all."""

    def call() -> None:
        used = [stream for stream in streams if stream is not None]
        for stream in used:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
        for _ in range(updates):
            for step, own in zip(steps, streams, strict=True):
                with torch.cuda.stream(own):
                    step()
        for stream in used:
            torch.cuda.current_stream(stream.device).wait_stream(stream)

    return call
