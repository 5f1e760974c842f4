"""The fields of an experiment file as dataclasses, with preset and overrides already applied."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..models.inputs import Missing
from ..tasks.base import Task
from ..training.config import Training

PRESETS = ("smoke", "short", "paper")
Kind = Literal["training", "analysis", "simulation"]


@dataclass(frozen=True)
class Number:
    """A published number. In a file: 98.7, or 97.50 +- 0.58."""

    mean: float
    std: float | None = None

    @classmethod
    def read(cls, value: object, path: str) -> Number:
        """Parse the value in a file."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return cls(float(value))
        found = re.fullmatch(r"(-?[0-9.]+) \+- ([0-9.]+)", value) if isinstance(value, str) else None
        if found is None:
            raise ValueError(f"expected {path} to be a number such as 98.7 or 97.50 +- 0.58, got {value!r}")
        return cls(float(found[1]), float(found[2]))


@dataclass(frozen=True)
class ReportedNumber:
    """The score that an experiment reports."""

    score: str = "accuracy"
    split: Literal["validation", "test"] = "validation"
    unit: str = ""
    """"%" shows a fraction as a percentage."""
    digits: int = 2
    reach: float | None = None
    """If given, the table also shows the number of updates until the validation score first reached this value."""
    late: bool = False
    """Whether the table also shows the mean validation score over the last fifth of a run; the best score is higher."""
    failed: float | None = None
    """A run whose best validation score is worse than this has failed: it is counted but excluded from the mean."""

    def __post_init__(self) -> None:
        if self.digits < 0:
            raise ValueError(f"expected report.digits to be at least 0, got {self.digits}")

    @property
    def scale(self) -> float:
        """Factor by which a score is multiplied for display."""
        return 100.0 if self.unit == "%" else 1.0


@dataclass(frozen=True)
class Need:
    """Trained models of another experiment that an analysis needs."""

    experiment: str
    models: list[str] | None = None
    """None for all models."""

    def names(self, experiment: Experiment) -> list[str]:
        """Names of these models in the experiment, which may leave some out."""
        return [name for name in (self.models or experiment.usual) if name in experiment.models]


@dataclass(frozen=True)
class Model:
    """One model of an experiment, with the settings that all models share filled in."""

    name: str
    """Name in the experiment."""
    make: str
    """Its name for `remanence.make`."""
    hidden_size: int
    """Number of units per layer."""
    output_dropout: float
    """Probability of dropping an output of the layer before the read-out."""
    layer: Mapping[str, Any]
    """Further arguments of `remanence.make`."""
    task: Task
    """The task to learn."""
    training: Training
    """The training configuration."""
    embedding: int | None = None
    """Embedding size, if the inputs of the task are symbols."""
    missing: Missing | None = None
    """How missing values are filled in, see `SequenceModel`."""
    mask_input: bool = False
    """Whether the mask of missing values is an input of the layer."""
    dt_input: bool = False
    """Whether the time since the previous step is an input of the layer."""
    parameters: int | None = None
    """Number of parameters of the published model, counted as here; None if unknown."""


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper: task, models, training, claims and published numbers."""

    id: str
    """Paper and name, such as "plstm/copy-500"."""
    title: str
    """One line that says what it is."""
    reproduces: str
    """The figure or table of the paper."""
    preset: str
    """The preset that was applied."""
    kind: Kind = "training"
    """Training, simulation or analysis."""
    claims: list[str] = field(default_factory=list)
    """The claims of the paper, in words."""
    published: dict[str, dict[str, Number]] = field(default_factory=dict)
    """Published numbers by quantity and model."""
    choices: list[str] = field(default_factory=list)
    """Choices that the paper leaves open, and deviations from it."""
    cost: dict[str, str] = field(default_factory=dict)
    """Run time of every preset, in words."""
    models: dict[str, Model] = field(default_factory=dict)
    """The models by name."""
    extra: list[str] = field(default_factory=list)
    """Models that run only if requested by name."""
    left_out: list[str] = field(default_factory=list)
    """Models that this preset skips."""
    seeds: list[int] = field(default_factory=list)
    """Seeds of the runs."""
    report: ReportedNumber = field(default_factory=ReportedNumber)
    """The score to report."""
    needs: dict[str, Need] = field(default_factory=dict)
    """For an analysis: the trained models it reads, by the name that the analysis uses for them."""
    function: str | None = None
    """The function of an analysis or simulation; for training, an analysis to run on the trained models."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of that function."""

    @property
    def usual(self) -> list[str]:
        """Models that run by default."""
        return [name for name in self.models if name not in self.extra]

    def published_of(self, model: str) -> str:
        """The key of a model in the published numbers: its name, or that of a quoted one, "uRNN (quoted)"."""
        numbers = self.published.get(self.report.score, {})
        quoted = (name for name in numbers if name.lower().startswith(f"{model} (quoted"))
        return model if model in numbers else next(quoted, model)

    @property
    def paper(self) -> str:
        """The first part of the id."""
        return self.id.split("/")[0]

    @property
    def is_own(self) -> bool:
        """Whether it is our own, not from a paper."""
        return self.paper == "own"
