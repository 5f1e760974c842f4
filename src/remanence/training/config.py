"""How a model is trained: the part of an experiment's configuration that the training loop reads."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..models import LanguageModel, SequenceModel
from ..tasks.base import Task


@dataclass(frozen=True)
class Optimiser:
    """The optimiser and what is done to gradients before it."""

    name: Literal["adam", "adamw", "rmsprop", "sgd"] = "adam"
    lr: float = 1e-3
    lr_factors: dict[str, float] = field(default_factory=dict)
    """What the learning rate of a parameter is multiplied with, by its name without the `_l0` of its layer: `skew: 0.1`
    lets the matrix of an expRNN learn slowly."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Of adam and adamw."""
    smoothing: float = 0.99
    """Of rmsprop: the weight of the past in its mean of squared gradients."""
    momentum: float = 0.0
    """Of rmsprop and sgd."""
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float | None = None
    """Largest norm of the gradient of one model; longer ones are scaled down."""
    clip_value: float | None = None
    """Largest absolute value of an entry of a gradient."""
    average: Literal["never", "when stalled"] = "never"
    """Whether weights are averaged over updates once the validation loss no longer improves, see `averaging`."""
    average_patience: int = 5
    """Evaluations without a lower loss before that."""

    def __post_init__(self) -> None:
        for name in ("lr", "momentum", "eps", "weight_decay"):
            expect(getattr(self, name) >= 0, f"optimiser.{name}", "at least 0", getattr(self, name))
        expect(math.isfinite(self.lr), "optimiser.lr", "finite", self.lr)
        for name, factor in self.lr_factors.items():
            expect(0 <= factor < math.inf, f"optimiser.lr_factors.{name}", "at least 0, and finite", factor)
        expect(all(0 <= beta < 1 for beta in self.betas), "optimiser.betas", "at least 0 and below 1", self.betas)
        expect(0 <= self.smoothing <= 1, "optimiser.smoothing", "from 0 to 1", self.smoothing)
        for name in ("clip_norm", "clip_value"):
            value = getattr(self, name)
            expect(value is None or value > 0, f"optimiser.{name}", "above 0", value)
        expect(self.average_patience >= 0, "optimiser.average_patience", "at least 0", self.average_patience)


@dataclass(frozen=True)
class Schedule:
    """What the learning rate is multiplied with as training goes on."""

    name: Literal["constant", "linear", "cosine", "steps"] = "constant"
    warmup: int = 0
    """Updates over which it rises linearly from zero."""
    final: float = 0.0
    """Of linear and cosine: the factor after the last update."""
    every: int = 0
    """Of steps: epochs between two reductions."""
    factor: float = 0.1
    """Of steps: what a reduction multiplies with."""

    def __post_init__(self) -> None:
        expect(self.warmup >= 0, "schedule.warmup", "at least 0", self.warmup)
        expect(self.name != "steps" or self.every >= 1, "schedule.every", "at least 1 epoch for 'steps'", self.every)


@dataclass(frozen=True)
class Stop:
    """When training ends before its last epoch. Scores are those of the validation split."""

    reached: dict[str, float] = field(default_factory=dict)
    """Ends as "converged" once every one of these scores is at least (loss: at most) this."""
    failed: dict[str, float] = field(default_factory=dict)
    """Ends as "failed" if, from epoch `failed_after` on, every one of these scores is below (loss: above) this."""
    failed_after: int = 0
    patience: int | None = None
    """Ends as "stalled" after so many evaluations in a row without a better goal."""

    def __post_init__(self) -> None:
        expect(self.patience is None or self.patience >= 1, "stop.patience", "at least 1", self.patience)


@dataclass(frozen=True)
class Training:
    """How long, on how much at a time, how precisely."""

    batch: int = 128
    epochs: int = 10
    epoch_updates: int | None = None
    """Updates that are called an epoch: needed where sequences are made without end, else all sequences once."""
    evaluate_every: int | None = None
    """Updates between two evaluations; None for once an epoch."""
    evaluate_batch: int | None = None
    """Sequences evaluated at a time; None for as many as in training."""
    test_batch: int | None = None
    """The same for the test split; None for as many as in validation."""
    evaluate_warm: int = 0
    """Of a stateful evaluation in several lanes: chunks that each lane reads before its own, which do not count. It
    begins them with the state after as many at the beginning of the text. 0 lets all lanes begin with zeros, which
    nobody does who reads a text from its beginning, and which some models take badly."""
    validation_size: int | None = None
    """Only the first so many validation sequences are used; None for all."""
    checkpoint_every: int | None = None
    """Updates between two checkpoints; None for at every evaluation."""
    report: Literal["best", "last"] = "best"
    """Whether the test split is scored with the weights that were best in validation or with the last ones."""
    best_by: str | None = None
    """The validation score whose best value says which weights are best; None for the goal of the task."""
    shuffle: bool = True
    """Whether every pass over the sequences is in a new random order, rather than in that of the set."""
    stateful: bool = False
    """Whether the state goes on from one batch to the next, detached: truncated backpropagation through time."""
    restart: float = 0.0
    """Of stateful training: how likely the state of a sequence is set to zero before a batch. Where only the first
    batch begins with zeros, a model may never learn to get away from there."""
    jitter: bool = False
    """Of stateful training on a text: chunks have random lengths around that of the task, and the learning rate of a
    chunk goes with its length. An epoch is as many updates as a pass takes on average."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of autocast; parameters stay float32."""
    compile: bool = False
    """Whether the model goes through `torch.compile`."""
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)
    stop: Stop = field(default_factory=Stop)
    watch_timescales: bool = False
    """Whether every evaluation also records the timescale of every unit, from the biases."""

    def __post_init__(self) -> None:
        for name in (
            *("batch", "epochs", "epoch_updates", "evaluate_every", "evaluate_batch", "test_batch", "validation_size"),
            "checkpoint_every",
        ):
            value = getattr(self, name)
            expect(value is None or value >= 1, name, "at least 1", value)
        expect(self.evaluate_warm >= 0, "evaluate_warm", "at least 0", self.evaluate_warm)
        expect(0 <= self.restart < 1, "restart", "at least 0 and below 1", self.restart)
        expect(self.stateful or not self.restart, "restart", "used with training.stateful only", self.restart)
        expect(self.stateful or not self.jitter, "jitter", "used with training.stateful only", self.jitter)


def expect(fine: bool, name: str, what: str, value: object) -> None:
    """One sentence for a value that cannot be."""
    if not fine:
        raise ValueError(f"expected training.{name} to be {what}, got {value}")


@dataclass(frozen=True)
class Run:
    """What is trained, how, and where it is kept."""

    directory: Path
    experiment: str
    model_name: str
    seed: int
    task: Task
    make_model: Callable[[], SequenceModel | LanguageModel]
    """Makes the model on the CPU; the global generator has been seeded."""
    config: Training
    description: dict[str, Any]
    """The full configuration as plain data, for `config.yaml`."""

    def __str__(self) -> str:
        return f"{self.experiment} {self.model_name} seed {self.seed}"


def expect_alike(runs: Sequence[Run]) -> list[Run]:
    """Refuse runs that cannot be trained side by side."""
    runs = list(runs)
    if not runs:
        raise ValueError("expected at least one run, got none")
    first = runs[0]
    for run in runs[1:]:
        if (run.config, run.task, run.model_name) != (first.config, first.task, first.model_name):
            raise ValueError(f"expected runs that differ in their seed alone, got {first} and {run}")
    if len(runs) > 1 and first.config.jitter:
        raise ValueError(
            f"expected runs with training.jitter one by one, whose chunks differ in length, got {len(runs)} together"
        )
    if len({run.directory for run in runs}) < len(runs):
        raise ValueError("expected a folder for every run, got one for several")
    return runs


def plain(value: Any) -> Any:
    """Dictionaries and lists for dataclasses and whatever is like them, so that YAML gives back what it was given.

    What is neither a number nor words becomes words.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
