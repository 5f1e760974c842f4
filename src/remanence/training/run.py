"""One seed of one model of one experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models import LanguageModel, SequenceModel
from ..tasks.base import Task
from .config import Training


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
