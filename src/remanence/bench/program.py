"""Overhead of the training loop, measured against a minimal loop.

Bare: model forward, loss, backward, gradient clipping and optimiser step on one batch that is already on the device,
written in plain PyTorch. Whole: an update of the training loop with everything around it: generating or loading
sequences, the learning rate schedule, accumulating metrics for the log, checking for signals.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import torch

from .. import tasks
from ..models import SequenceModel
from ..nn import make
from ..tasks.base import Task, side_by_side
from ..training import Optimiser, Run, Training
from ..training.graph import WARM
from ..training.loop import Loop
from .measure import Call
from .timings import Say


@dataclass(frozen=True)
class Setting:
    """A task with the model size and training configuration to benchmark."""

    name: str
    task: Task
    units: int
    config: Training


RMSPROP = Optimiser(name="rmsprop", smoothing=0.9, clip_norm=1.0)


def settings(device: torch.device) -> list[Setting]:
    """Tasks of the papers. The copy task has a shorter delay on a CPU."""
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
    """Timing of one model on one task."""

    task: str
    layer: str
    replicas: int
    bare_ms: float
    """Time of one model alone, multiplied by the number of replicas."""
    whole_ms: float

    @property
    def ratio(self) -> float:
        """Bare over whole: 1 if the training loop adds no overhead."""
        return self.bare_ms / self.whole_ms


ROUNDS = 7
"""Number of alternating measurements of both: interference from other processes affects both alike."""
SECONDS = 0.3
"""Duration of one measurement."""


def programs(device: torch.device, say: Say, counts: tuple[int, ...] = (1,)) -> Iterator[Program]:
    """Measure every setting with every layer, for each number of replicas trained side by side in `counts`."""
    for setting in settings(device):
        for layer in LAYERS:
            bare = bare_update(setting, layer, device)
            for count in counts:
                say(f"the training loop: {setting.name} {layer}")
                with tempfile.TemporaryDirectory() as folder:
                    whole = whole_update(setting, layer, device, count, Path(folder))
                    bare_ms, whole_ms = in_turn((bare, whole), device)
                yield Program(setting.name, layer, count, bare_ms * count, whole_ms)


def in_turn(calls: Sequence[Call], device: torch.device) -> list[float]:
    """Median time of each call in milliseconds, measured alternately."""
    for call in calls:
        for _ in range(WARM + 3):
            call()
    counts = [max(1, min(400, int(SECONDS * 1e3 / elapsed(call, 2, device)))) for call in calls]
    rounds = [
        [elapsed(call, number, device) for call, number in zip(calls, counts, strict=True)] for _ in range(ROUNDS)
    ]
    return [median(times) for times in zip(*rounds, strict=True)]


def elapsed(call: Call, count: int, device: torch.device) -> float:
    """Mean time of one call in milliseconds, over `count` calls in a row."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(count):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) * 1e3 / count


def model(setting: Setting, layer: str) -> SequenceModel:
    """Build the model of a setting."""
    task = setting.task
    return SequenceModel(make(layer, task.input_size, setting.units), task.output_size, readout=task.readout)


def bare_update(setting: Setting, layer: str, device: torch.device) -> Call:
    """A minimal training update in plain PyTorch."""
    task, config = setting.task, setting.config
    learner = model(setting, layer).to(device)
    source = task.source("train", 1, device)
    assert source is not None
    if source.size is None:
        one = source.draw(config.batch, torch.Generator(device))
    else:
        one = source.pick(torch.arange(config.batch, device=device))
    batch = side_by_side([one])
    dt = one.dt if learner.takes_dt else None
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

    return update


def whole_update(setting: Setting, layer: str, device: torch.device, count: int, folder: Path) -> Call:
    """An update of the training loop, with `count` replicas side by side."""
    config = replace(setting.config, epochs=1000, epoch_updates=1000)
    runs = [
        Run(folder / str(seed), "bench", layer, seed, setting.task, lambda: model(setting, layer), config, {})
        for seed in range(1, count + 1)
    ]
    return partial(advance, Loop.alone(runs, device))


def advance(loop: Loop) -> None:
    """An update without evaluations."""
    if loop.timetable.evaluates(loop.at.update):  # the loss buffer is full: reset it, as an evaluation would
        loop.at.evaluated = loop.at.update
    loop.update()
