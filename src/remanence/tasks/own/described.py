"""A task known only from a saved configuration: enough to build its model, but without its sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from ...nn.expect import expect_size
from ..base import Batch, Split, Task
from ..expect import expect_flag, expect_one_of

FIELDS = ("input_size", "output_size", "readout", "goal", "higher_is_better")


class Described(Task):
    """The interface of a custom task, read from a run folder. Files of a run never cause an import.

    Args:
        name: Name of the task.
        facts: The interface, as stored in `config.yaml`.
    """

    def __init__(self, name: str, facts: Mapping[str, Any]) -> None:
        missing = [field for field in FIELDS if field not in facts]
        if missing:
            raise ValueError(f"expected the interface of task {name!r} to have {', '.join(missing)}, got none")
        self.name, self.facts = name, facts  # type: ignore[misc]
        self.goal, self.readout = str(facts["goal"]), facts["readout"]  # type: ignore[misc]
        self.higher_is_better = facts["higher_is_better"]  # type: ignore[misc]
        expect_one_of("interface.readout", self.readout, ("every", "last"))
        expect_flag("interface.higher_is_better", self.higher_is_better)

    @property
    def input_size(self) -> int:
        return expect_size("interface.input_size", self.facts["input_size"])

    @property
    def output_size(self) -> int:
        return expect_size("interface.output_size", self.facts["output_size"])

    def source(self, split: Split, seed: int, device: torch.device) -> NoReturn:
        raise ValueError(
            f"expected a built-in task, whose sequences can be read again, got the custom task {self.name!r}"
        )

    def loss(self, outputs: Tensor, batch: Batch) -> NoReturn:
        self.source("train", 0, outputs.device)

    def scores(self, outputs: Tensor, batch: Batch) -> NoReturn:
        self.source("train", 0, outputs.device)


def interface(task: Task) -> dict[str, Any]:
    """The properties of a task that models and reports need, as plain data."""
    return {name: getattr(task, name) for name in FIELDS}
