"""Language models in the training loop: one alone, and several that take turns on one GPU.

Updates are those of the published recipe, with chunks of random lengths, on a random text: drawing a chunk, forward,
backward, clipping, optimiser. They are measured once as they are, and once replayed from CUDA graphs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

from ..models import LanguageModel, language_model
from ..tasks import NextWord
from ..tasks.base import Split
from ..tasks.streams import Chunks, Stream
from ..training import Optimiser, Run, Training
from ..training.loop import Loop
from ..training.turns import on, own_streams
from . import language
from .language import STEPS, TextShape
from .measure import Call
from .program import advance, elapsed
from .timings import Say

MODEL = "mts"
COUNTS = (1, 2, 3, 4)
WARM = 120
"""Updates before measurements: most lengths of chunks are met twice, after which they are captured."""
UPDATES = 16
"""Updates of every model per measurement."""
ROUNDS = 5


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
    launched_ms: float
    """The same as `update_ms` if the host launches every kernel."""

    @property
    def ratio(self) -> float:
        """Updates per second of all models over those of one alone."""
        return self.alone_ms / self.update_ms


@dataclass(frozen=True, kw_only=True)
class RandomWords(NextWord):
    """A text of random words."""

    words: int
    tokens: int

    @property
    def symbols(self) -> int:
        return self.words

    def source(self, split: Split, seed: int, device: torch.device) -> Chunks:
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(self.words, (self.tokens,), generator=generator, dtype=torch.int32)
        return Chunks(Stream(tokens.to(device)), self.chunk, (self.tokens - 1) // self.chunk)


def language_turns(device: torch.device, say: Say) -> Iterator[LanguageTurns]:
    """Measure every number of models on every text."""
    for corpus in language.CORPORA:
        with tempfile.TemporaryDirectory() as folder:
            say(f"language models in turns: {corpus.name}")
            yield from turns_on(corpus, device, Path(folder))


def turns_on(corpus: TextShape, device: torch.device, folder: Path) -> Iterator[LanguageTurns]:
    """Measure every number of models on one text."""
    streams = own_streams(device, max(COUNTS))
    loops = []
    for number, stream in enumerate(streams):
        with on(stream):
            loops.append(loop_on(corpus, device, folder / str(number)))
    calls = {count: partial(advance_all, loops[:count], streams[:count]) for count in COUNTS}
    graphs = [loop.graphs for loop in loops]
    for loop in loops:
        loop.graphs = None
    launched = update_times(calls, 3, device)
    for loop, own in zip(loops, graphs, strict=True):
        loop.graphs = own
    replayed = update_times(calls, WARM, device)
    for count in COUNTS:
        yield LanguageTurns(corpus.name, MODEL, count, replayed[count], replayed[1], launched[count])


def update_times(calls: Mapping[int, Call], warm: int, device: torch.device) -> dict[int, float]:
    """Milliseconds of an update of one model, by the number of models in turns, after some updates of all."""
    for _ in range(warm):
        calls[max(calls)]()
    times: dict[int, list[float]] = {count: [] for count in calls}
    for _ in range(ROUNDS):
        for count, call in calls.items():
            times[count].append(elapsed(call, UPDATES, device) / count)
    return {count: median(values) for count, values in times.items()}


def advance_all(loops: Sequence[Loop], streams: Sequence[torch.cuda.Stream | None]) -> None:
    """An update of every loop."""
    for loop, stream in zip(loops, streams, strict=True):
        with on(stream):
            advance(loop)


def loop_on(corpus: TextShape, device: torch.device, folder: Path) -> Loop:
    """The training loop of one model."""
    task = RandomWords(chunk=STEPS, words=corpus.words, tokens=corpus.tokens)
    optimiser = Optimiser("sgd", lr=1.0, clip_norm=0.25, weight_decay=1.2e-6)
    config = Training(corpus.batch, epochs=1000, stateful=True, jitter=True, optimiser=optimiser)

    def make() -> LanguageModel:
        return language_model(MODEL, corpus.words, embedding_size=language.VECTOR, hidden_size=language.UNITS)

    return Loop.alone([Run(folder, "bench", MODEL, 1, task, make, config, {})], device)
