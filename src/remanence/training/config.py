"""The configuration of the training loop, and a run: one seed of one model of one experiment."""

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
    """The optimiser, gradient clipping and weight averaging."""

    name: Literal["adam", "adamw", "rmsprop", "sgd"] = "adam"
    """Algorithm."""
    lr: float = 1e-3
    """Learning rate."""
    lr_factors: dict[str, float] = field(default_factory=dict)
    """Learning rate multipliers by parameter name, without the `_l0` of the layer: `skew: 0.1` lets the matrix of an
    expRNN learn slowly."""
    betas: tuple[float, float] = (0.9, 0.999)
    """For adam and adamw."""
    smoothing: float = 0.99
    """For rmsprop: smoothing constant of the mean of squared gradients, `alpha` in torch."""
    momentum: float = 0.0
    """For rmsprop and sgd."""
    eps: float = 1e-8
    """Added to the denominator, for adam, adamw and rmsprop."""
    weight_decay: float = 0.0
    """Weight decay."""
    clip_norm: float | None = None
    """Maximum norm of the gradient of one model; larger gradients are scaled down."""
    clip_value: float | None = None
    """Maximum absolute value of a gradient element."""
    average: Literal["never", "when stalled"] = "never"
    """Whether to average weights over updates once the validation loss no longer improves (NT-ASGD)."""
    average_patience: int = 5
    """Evaluations without a lower loss before averaging starts."""

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
    """Learning rate schedule: a factor for every update."""

    name: Literal["constant", "linear", "cosine", "steps"] = "constant"
    """Form of the schedule after the warm-up."""
    warmup: int = 0
    """Updates of linear warm-up from zero."""
    final: float = 0.0
    """For linear and cosine: factor after the last update."""
    every: int = 0
    """For steps: epochs between two reductions."""
    factor: float = 0.1
    """For steps: factor of one reduction."""

    def __post_init__(self) -> None:
        expect(self.warmup >= 0, "schedule.warmup", "at least 0", self.warmup)
        expect(self.name != "steps" or self.every >= 1, "schedule.every", "at least 1 epoch for 'steps'", self.every)


@dataclass(frozen=True)
class Stop:
    """Early stopping. Scores are those of the validation split."""

    reached: dict[str, float] = field(default_factory=dict)
    """Stop as "converged" once every one of these scores is at least (loss: at most) this."""
    failed: dict[str, float] = field(default_factory=dict)
    """Stop as "failed" if, from epoch `failed_after` on, every one of these scores is below (loss: above) this."""
    failed_after: int = 0
    """First epoch in which `failed` is checked."""
    patience: int | None = None
    """Stop as "stalled" after this many evaluations in a row without improvement of the goal."""

    def __post_init__(self) -> None:
        expect(self.patience is None or self.patience >= 1, "stop.patience", "at least 1", self.patience)


@dataclass(frozen=True)
class Training:
    """Batch size, epochs, evaluation, precision, optimiser, schedule and early stopping of a training run."""

    batch: int = 128
    """Sequences per update."""
    epochs: int = 10
    """Maximum number of epochs."""
    epoch_updates: int | None = None
    """Updates per epoch; None for one pass over all sequences. Required if the task generates sequences endlessly."""
    evaluate_every: int | None = None
    """Updates between two evaluations; None for one evaluation per epoch."""
    evaluate_batch: int | None = None
    """Batch size of evaluations; None for that of training."""
    test_batch: int | None = None
    """Batch size on the test split; None for that of validation."""
    evaluate_warm: int = 0
    """For stateful evaluation in several lanes: number of warm-up chunks that each lane reads before its own, without
    scoring them. A lane starts its warm-up with the state after the first chunks of the text, as many. With 0, all
    lanes start with a zero state, which never occurs in the middle of a text and which some models handle badly."""
    validation_size: int | None = None
    """Number of validation sequences to use, from the first; None for all."""
    checkpoint_every: int | None = None
    """Updates between two checkpoints; None for a checkpoint at every evaluation."""
    report: Literal["best", "last"] = "best"
    """Whether to score the test split with the best weights by validation or with the last weights."""
    best_by: str | None = None
    """Validation score that selects the best weights; None for the goal of the task."""
    shuffle: bool = True
    """Whether to shuffle the sequences before every pass; otherwise they keep the order of the data set."""
    stateful: bool = False
    """Whether to carry the detached state from one batch to the next: truncated backpropagation through time."""
    restart: float = 0.0
    """For stateful training: probability that the state of a sequence is reset to zero before a batch. If only the
    first batch starts from zeros, a model may never learn to recover from a zero state."""
    jitter: bool = False
    """For stateful training on a text: chunks have random lengths around that of the task, and the learning rate of a
    chunk is proportional to its length. An epoch is the mean number of updates of a pass."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Autocast dtype; parameters stay float32."""
    compile: bool = False
    """Whether to compile the model with `torch.compile`."""
    optimiser: Optimiser = field(default_factory=Optimiser)
    """The optimiser."""
    schedule: Schedule = field(default_factory=Schedule)
    """The learning rate schedule."""
    stop: Stop = field(default_factory=Stop)
    """Early stopping."""
    watch_timescales: bool = False
    """Whether every evaluation also logs the timescale of every unit, computed from the biases."""

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
    """Raise a `ValueError` that names the field, unless `fine`."""
    if not fine:
        raise ValueError(f"expected training.{name} to be {what}, got {value}")


@dataclass(frozen=True)
class Run:
    """One seed of one model of one experiment: model, task, configuration and folder."""

    directory: Path
    """Folder of the run."""
    experiment: str
    """Name of the experiment."""
    model_name: str
    """Name of the model."""
    seed: int
    """Seed of weights, data order and dropout."""
    task: Task
    """The task to learn."""
    make_model: Callable[[], SequenceModel | LanguageModel]
    """Makes the model on the CPU; called after the global generator was seeded."""
    config: Training
    """The training configuration."""
    description: dict[str, Any]
    """The complete configuration as plain data, for `config.yaml`."""

    def __str__(self) -> str:
        return f"{self.experiment} {self.model_name} seed {self.seed}"


def stacks(runs: Sequence[Run]) -> list[list[int]]:
    """The indices of runs that can be stacked: they differ only in their seed. Jittered chunks differ in length."""
    found: list[list[int]] = []
    for number, run in enumerate(runs):
        for stack in found:
            first = runs[stack[0]]
            same = (run.config, run.task, run.model_name) == (first.config, first.task, first.model_name)
            if same and run.experiment == first.experiment and not run.config.jitter:
                stack.append(number)
                break
        else:
            found.append([number])
    return found


def expect_own_folders(runs: Sequence[Run]) -> list[Run]:
    """The runs as a list. Raises a `ValueError` if there are none, or two with the same folder."""
    runs = list(runs)
    if not runs:
        raise ValueError("expected at least one run, got none")
    if len({run.directory for run in runs}) < len(runs):
        raise ValueError("expected a separate folder for every run, got one folder for several runs")
    return runs


def plain(value: Any) -> Any:
    """Convert dataclasses, mappings and sequences to dicts and lists, so that a value survives a YAML round trip.

    Anything else that is not a number, string, bool or None becomes a string.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
