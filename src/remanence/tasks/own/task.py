"""Tasks that learn from the user's own sequences."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from .. import metrics
from ..base import Batch, Readout, Score, Source, Split, Task
from .data import KeptData, SequenceData

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class DataTask(Task):
    """A task on your own data, which is read once and is the same for every seed.

    To define one, write a frozen dataclass with a method `read`; its fields are the settings of a configuration.
    Classification minimises cross-entropy and is scored by `accuracy`. Regression minimises the mean squared error
    (`loss`) and also reports `rmse` and the mean `absolute_error`.
    """

    name: ClassVar[str] = "own data"

    @abstractmethod
    def read(self) -> Mapping[Split, SequenceData]:
        """The sequences by split: "train", and optionally "validation" and "test"."""

    @cached_property
    def splits(self) -> dict[Split, SequenceData]:
        """The sequences by split, validated."""
        found = dict(self.read())
        if "train" not in found or not set(found) <= set(SPLITS):
            raise ValueError(
                f"expected sequences for train, and optionally validation and test, got {', '.join(found)}"
            )
        for split, data in found.items():
            if not isinstance(data, SequenceData):
                raise TypeError(f"expected SequenceData for {split}, got {type(data).__name__}")
            for what in ("learned", "readout", "symbols"):
                own, other = getattr(found["train"], what), getattr(data, what)
                if own != other:
                    raise ValueError(f"expected {split} to have {what}={own!r} like train, got {other!r}")
            sizes = [_width(one) for one in (found["train"], data)]
            if sizes[0] != sizes[1]:
                raise ValueError(
                    f"expected {split} to have the input and output sizes of train, {sizes[0]}, got {sizes[1]}"
                )
        return found

    @property
    def data(self) -> SequenceData:
        """The training sequences."""
        return self.splits["train"]

    @property
    def digests(self) -> dict[str, str]:
        """The digest of every split."""
        return {split: data.digest for split, data in self.splits.items()}

    @property
    def readout(self) -> Readout:  # type: ignore[override]  # a class variable in tasks that know it before reading
        return self.data.readout

    @property
    def goal(self) -> str:  # type: ignore[override]
        return "accuracy" if self.data.classes else "loss"

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        return bool(self.data.classes)

    @property
    def input_size(self) -> int:
        return max(data.input_size for data in self.splits.values())

    @property
    def output_size(self) -> int:
        return max(data.output_size for data in self.splits.values())

    def source(self, split: Split, seed: int, device: torch.device) -> Source | None:
        return KeptData(self.splits[split], device) if split in self.splits else None

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        errors, counts = self._errors(outputs, batch)
        if counts is None:
            return metrics.mean(errors)
        kept = torch.where(counts, errors, 0).flatten(1).sum(1)
        return kept / counts.flatten(1).sum(1).clamp(min=1)  # a batch without counted steps has zero loss and gradient

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        errors, counts = self._errors(outputs, batch)
        loss = metrics.score(errors, counts)
        if self.data.classes:
            return {"loss": loss, "accuracy": metrics.score(metrics.right(outputs, batch.targets), counts)}
        return {"loss": loss, "absolute_error": metrics.score((outputs - batch.targets).abs(), counts)}

    def derived(self, scores: dict[str, float]) -> dict[str, float]:
        return {} if self.data.classes else {"rmse": scores["loss"] ** 0.5}

    def _errors(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The error of every prediction, and which of them count."""
        if self.data.classes:
            return metrics.cross_entropy(outputs, batch.targets), batch.counts
        counts = batch.counts
        if counts is not None and counts.dim() < batch.targets.dim():
            counts = counts.unsqueeze(-1).expand(batch.targets.shape)
        return (outputs - batch.targets).square(), counts


class GivenData(DataTask):
    """A task on sequences that are in memory.

    Args:
        given: sequences by split.
    """

    def __init__(self, given: Mapping[Split, SequenceData]) -> None:
        self.given = given

    def read(self) -> Mapping[Split, SequenceData]:
        return self.given


def _width(data: SequenceData) -> tuple[int, int]:
    """Input and output size; 0 for symbols and classes, of which a split may contain only some."""
    return (0 if data.symbols else data.input_size, 0 if data.classes else data.output_size)
