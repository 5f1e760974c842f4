"""Runs that take a second."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

import remanence as rm
from remanence.models import LanguageModel, SequenceModel, language_model
from remanence.tasks import NextWord, make
from remanence.tasks.base import Task
from remanence.tasks.streams import Chunks, Stream
from remanence.training import Optimiser, Run, Training

TASK = make("copy", delay=3, symbols=4, length=2, train_size=64, validation_size=20, test_size=12)
CONFIG = Training(
    batch=8, epochs=3, evaluate_every=4, optimiser=Optimiser("adam", lr=1e-2, clip_norm=1.0)
)  # 24 updates, 6 evaluations
MADE_ANEW = {"machine.json", "times.jsonl", "SHA256SUMS"}


def run(
    folder: Path,
    seed: int = 1,
    *,
    task: Task = TASK,
    model: str = "plstm",
    units: int = 6,
    dropout: float = 0.0,
    config: Training = CONFIG,
    **keywords: object,
) -> Run:
    """A small run. Keywords change the configuration."""
    config = replace(config, **keywords)

    def make_model() -> SequenceModel:
        layer = rm.make(model, task.input_size, units)
        return SequenceModel(layer, task.output_size, readout=task.readout, dropout=dropout)

    description = {"experiment": "test/copy", "model": model, "seed": seed, "training": asdict(config)}
    return Run(folder / f"seed-{seed}", "test/copy", model, seed, task, make_model, config, description)


@dataclass(frozen=True, kw_only=True)
class Made(NextWord):
    """Words of a text that is made here: each is drawn from the three after the one before it."""

    chunk: int = 8

    @property
    def symbols(self) -> int:
        return 20

    def source(self, split: str, seed: int, device: torch.device) -> Chunks:
        length = {"train": 400, "validation": 150, "test": 61}[split]
        generator = torch.Generator().manual_seed(length)
        steps = torch.randint(1, 4, (length,), generator=generator)
        tokens = (steps.cumsum(0) % self.symbols).int().to(device)
        return Chunks(Stream(tokens), self.chunk, -(-(length - 1) // self.chunk) if split != "train" else 49)


WORDS = Training(
    batch=4,
    epochs=5,
    evaluate_batch=2,
    test_batch=1,
    checkpoint_every=7,
    stateful=True,
    jitter=True,
    optimiser=Optimiser("sgd", lr=8, clip_norm=0.25, weight_decay=1e-3, average="when stalled", average_patience=0),
)


def words_run(folder: Path, seed: int = 1, *, model: str = "mts", **keywords: object) -> Run:
    """A small language model. Keywords change the configuration."""
    config = replace(WORDS, **keywords)
    task = Made()

    def make_model() -> LanguageModel:
        return language_model(model, task.symbols, embedding_size=6, hidden_size=10)

    description = {"experiment": "test/words", "model": model, "seed": seed, "training": asdict(config)}
    return Run(folder / f"seed-{seed}", "test/words", model, seed, task, make_model, config, description)


def weights(run: Run, name: str | None = None) -> dict[str, torch.Tensor]:
    """The weights of the newest checkpoint of a run, or of one by name."""
    from safetensors.torch import load_file

    if name is not None:
        return load_file(run.directory / "checkpoints" / name)
    path = max((run.directory / "checkpoints").glob("step-*.safetensors"))
    return {name.removeprefix("model/"): value for name, value in load_file(path).items() if name.startswith("model/")}


def content(folder: Path) -> dict[str, bytes]:
    """Every file that must not depend on how often a run was interrupted."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in MADE_ANEW
    }
