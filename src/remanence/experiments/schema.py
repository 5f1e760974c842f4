"""What an experiment is: the fields of its file, with presets and overrides already applied."""

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
        """From what a file says."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return cls(float(value))
        found = re.fullmatch(r"(-?[0-9.]+) \+- ([0-9.]+)", value) if isinstance(value, str) else None
        if found is None:
            raise ValueError(f"expected {path} to be a number such as 98.7 or 97.50 +- 0.58, got {value!r}")
        return cls(float(found[1]), float(found[2]))


@dataclass(frozen=True)
class ReportedNumber:
    """Which number an experiment is about."""

    score: str = "accuracy"
    split: Literal["validation", "test"] = "validation"
    unit: str = ""
    """"%" shows a fraction times 100."""
    digits: int = 2
    reach: float | None = None
    """Where given, the table also says after how many updates the validation score was first this good."""
    late: bool = False
    """Whether the table also has the mean validation score of the last fifth of a run, which the best one is above."""
    failed: float | None = None
    """A run whose best validation score is worse than this has failed: it is counted, and left out of the mean."""

    def __post_init__(self) -> None:
        if self.digits < 0:
            raise ValueError(f"expected report.digits to be at least 0, got {self.digits}")

    @property
    def scale(self) -> float:
        """What a score is multiplied with when it is shown."""
        return 100.0 if self.unit == "%" else 1.0


@dataclass(frozen=True)
class Need:
    """Trained models of another experiment."""

    experiment: str
    models: list[str] | None = None
    """None for all."""


@dataclass(frozen=True)
class Model:
    """One model of an experiment, with all it shares with the others filled in."""

    name: str
    make: str
    """Its name for `remanence.make`."""
    hidden_size: int
    output_dropout: float
    """Probability of dropping an output of the layer before the read-out."""
    layer: Mapping[str, Any]
    """Further arguments of `remanence.make`."""
    task: Task
    training: Training
    embedding: int | None = None
    """Width of the vectors that symbols get, where a task's inputs are symbols."""
    missing: Missing | None = None
    """What stands in the place of values that are missing, see `SequenceModel`."""
    mask_input: bool = False
    """Whether the mask of what is missing goes into the layer."""
    dt_input: bool = False
    """Whether the time since the previous step goes into the layer."""
    parameters: int | None = None
    """The number of parameters the published model has, counted as here, where it is known."""


@dataclass(frozen=True)
class Experiment:
    """A table or a figure: what is learned, by which models, how, and what came out when it was published."""

    id: str
    title: str
    reproduces: str
    """The figure or table."""
    preset: str
    kind: Kind = "training"
    claims: list[str] = field(default_factory=list)
    """What was published, in words."""
    published: dict[str, dict[str, Number]] = field(default_factory=dict)
    """Published numbers by quantity and model."""
    choices: list[str] = field(default_factory=list)
    """What the paper leaves open or we do otherwise."""
    cost: dict[str, str] = field(default_factory=dict)
    """How long a preset takes, in words."""
    models: dict[str, Model] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    """Models that run only where they are named."""
    left_out: list[str] = field(default_factory=list)
    """Models that this preset leaves out."""
    seeds: list[int] = field(default_factory=list)
    report: ReportedNumber = field(default_factory=ReportedNumber)
    needs: dict[str, Need] = field(default_factory=dict)
    """Of an analysis: the trained models it looks at, by the name it knows them under."""
    function: str | None = None
    """Of an analysis or simulation: what it does. Of training: an analysis of the models when they are trained."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Of that function."""

    @property
    def usual(self) -> list[str]:
        """Models that run where none are named."""
        return [name for name in self.models if name not in self.extra]

    def published_of(self, model: str) -> str:
        """What published numbers call a model: its name, or that of a quoted one, "uRNN (quoted)"."""
        numbers = self.published.get(self.report.score, {})
        quoted = (name for name in numbers if name.lower().startswith(f"{model} (quoted"))
        return model if model in numbers else next(quoted, model)

    @property
    def paper(self) -> str:
        """The first part of the id."""
        return self.id.split("/")[0]
