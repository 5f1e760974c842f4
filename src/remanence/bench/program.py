"""The whole training program against its bare arithmetic.

Bare: the model forward, the loss, backward, clipping and the optimiser, on one batch that is there already, written as
anybody would write it. Whole: an update of the training loop with everything around it: sequences made or looked up,
the learning rate, the sums for the log, watching for signals.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from .. import tasks
from ..models import SequenceModel
from ..nn import make
from ..tasks.base import Task, side_by_side
from ..training import Optimiser, Run, Training, train
from .timings import Say


@dataclass(frozen=True)
class Setting:
    """What is trained."""

    name: str
    task: Task
    units: int
    config: Training


RMSPROP = Optimiser(name="rmsprop", smoothing=0.9, clip_norm=1.0)


def settings(device: torch.device) -> list[Setting]:
    """Tasks of the papers; on a CPU the copy task has a shorter delay."""
    delay = 200 if device.type == "cuda" else 20
    copy = tasks.Copy(delay=delay, train_size=10_000, validation_size=128)
    frequency = tasks.Frequency(sampling="async", validation_size=32)
    return [
        Setting(f"copy-{delay}", copy, 128, Training(128, optimiser=RMSPROP)),
        Setting("digits", tasks.Pixels(data="digits"), 128, Training(100, optimiser=Optimiser(clip_norm=1.0))),
        Setting("frequency", frequency, 110, Training(32)),
    ]


LAYERS = ("lstm", "fast", "plstm")


@dataclass(frozen=True)
class Program:
    """One model on one task."""

    task: str
    layer: str
    replicas: int
    bare_ms: float
    """Of one model alone, times the number of replicas."""
    whole_ms: float

    @property
    def ratio(self) -> float:
        """Bare over whole: 1 if the program costs nothing beside its arithmetic."""
        return self.bare_ms / self.whole_ms


def programs(device: torch.device, say: Say, counts: tuple[int, ...] = (1,)) -> Iterator[Program]:
    """Measure every setting with every layer, and so many seeds trained side by side."""
    for setting in settings(device):
        for layer in LAYERS:
            say(f"the training loop: {setting.name} {layer}")
            bare = bare_milliseconds(setting, layer, device)
            updates = updates_for(bare)
            for count in counts:
                whole = whole_milliseconds(setting, layer, device, count, updates)
                yield Program(setting.name, layer, count, bare * count, whole)


def updates_for(milliseconds: float) -> int:
    """Updates of about a second, at least 5 and at most 400."""
    return max(5, min(400, int(1000 / milliseconds)))


def model(setting: Setting, layer: str) -> SequenceModel:
    """The model of a setting."""
    task = setting.task
    return SequenceModel(make(layer, task.input_size, setting.units), task.output_size, readout=task.readout)


def bare_milliseconds(setting: Setting, layer: str, device: torch.device) -> float:
    """One update without anything around it."""
    task, config = setting.task, setting.config
    learner = model(setting, layer).to(device)
    source = task.source("train", 1, device)
    assert source is not None
    random = torch.Generator(device)
    one = (
        source.draw(config.batch, random)
        if source.size is None
        else source.pick(torch.arange(config.batch, device=device))
    )
    batch = side_by_side([one])
    dt = one.dt if learner.layer.cell.takes_dt else None
    given = config.optimiser
    optimiser: torch.optim.Optimizer
    if given.name == "rmsprop":
        optimiser = torch.optim.RMSprop(learner.parameters(), lr=given.lr, alpha=given.smoothing)
    else:
        optimiser = torch.optim.Adam(learner.parameters(), lr=given.lr)

    def update() -> None:
        optimiser.zero_grad(set_to_none=True)
        outputs, _ = learner(one.inputs, one.lengths, dt)
        task.loss(outputs.unsqueeze(0), batch).sum().backward()  # type: ignore[no-untyped-call]
        if given.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(learner.parameters(), given.clip_norm)
        optimiser.step()

    for _ in range(3):
        update()
    first = elapsed(update, 2, device)
    count = updates_for(first)
    return median(elapsed(update, max(1, count // 5), device) for _ in range(5))


def elapsed(update: Any, count: int, device: torch.device) -> float:
    """Milliseconds of one of so many updates in a row."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(count):
        update()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) * 1e3 / count


def whole_milliseconds(setting: Setting, layer: str, device: torch.device, count: int, updates: int) -> float:
    """One update of the training loop, of so many replicas side by side, from what its own clock wrote down."""
    config = replace(setting.config, epochs=4, epoch_updates=updates, validation_size=setting.config.batch)
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            Run(Path(folder) / str(seed), "bench", layer, seed, setting.task, lambda: model(setting, layer), config, {})
            for seed in range(1, count + 1)
        ]
        train(runs, device=device)
        return median(update_milliseconds(runs[0].directory)[1:])


def update_milliseconds(directory: Path) -> list[float]:
    """Milliseconds of an update between two evaluations, from a run's times.jsonl."""
    lines = [json.loads(line) for line in (directory / "times.jsonl").read_text().splitlines()]
    seen = [line for line in lines if line["what"] == "evaluation"]
    return [(line["seconds"] - line["evaluation"]) * 1e3 / line["updates"] for line in seen]
