"""Learning from sequences of one's own."""

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
    """A task whose sequences are read once and are the same for every seed.

    To make one, write a frozen dataclass with a method `read`; its fields are what a configuration may set. Classes
    are learned by cross-entropy and scored by `accuracy`, numbers by the mean squared error (`loss`), with `rmse` and
    the mean `absolute_error` beside it.
    """

    name: ClassVar[str] = "own data"

    @abstractmethod
    def read(self) -> Mapping[Split, SequenceData]:
        """The sequences of the splits that there are: "train", and "validation" and "test" as far as wanted."""

    @cached_property
    def splits(self) -> dict[Split, SequenceData]:
        """What was read, checked."""
        found = dict(self.read())
        if "train" not in found or not set(found) <= set(SPLITS):
            raise ValueError(f"expected sequences for train, and maybe validation and test, got {', '.join(found)}")
        for split, data in found.items():
            if not isinstance(data, SequenceData):
                raise TypeError(f"expected SequenceData for {split}, got {type(data).__name__}")
            for what in ("learned", "readout", "symbols"):
                own, other = getattr(found["train"], what), getattr(data, what)
                if own != other:
                    raise ValueError(f"expected {split} to have {what} {own!r} as train has, got {other!r}")
            sizes = [_width(one) for one in (found["train"], data)]
            if sizes[0] != sizes[1]:
                raise ValueError(
                    f"expected {split} with inputs and outputs as wide as in train, {sizes[0]}, got {sizes[1]}"
                )
        return found

    @property
    def data(self) -> SequenceData:
        """What it is trained on."""
        return self.splits["train"]

    @property
    def digests(self) -> dict[str, str]:
        """The digest of every split."""
        return {split: data.digest for split, data in self.splits.items()}

    @property
    def readout(self) -> Readout:  # type: ignore[override]  # a class variable of tasks that know it before they read
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
        return kept / counts.flatten(1).sum(1).clamp(min=1)  # where nothing counts, nothing is learned

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        errors, counts = self._errors(outputs, batch)
        loss = metrics.score(errors, counts)
        if self.data.classes:
            return {"loss": loss, "accuracy": metrics.score(metrics.right(outputs, batch.targets), counts)}
        return {"loss": loss, "absolute_error": metrics.score((outputs - batch.targets).abs(), counts)}

    def derived(self, scores: dict[str, float]) -> dict[str, float]:
        return {} if self.data.classes else {"rmse": scores["loss"] ** 0.5}

    def _errors(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """What is summed, of every prediction, and which count."""
        if self.data.classes:
            return metrics.cross_entropy(outputs, batch.targets), batch.counts
        counts = batch.counts
        if counts is not None and counts.dim() < batch.targets.dim():
            counts = counts.unsqueeze(-1).expand(batch.targets.shape)
        return (outputs - batch.targets).square(), counts


class GivenData(DataTask):
    """Sequences that a program has in its hands.

    Args:
        given: by split.
    """

    def __init__(self, given: Mapping[Split, SequenceData]) -> None:
        self.given = given

    def read(self) -> Mapping[Split, SequenceData]:
        return self.given


def _width(data: SequenceData) -> tuple[int, int]:
    """Inputs and outputs; classes and symbols of a split are those that happen to occur in it."""
    return (0 if data.symbols else data.input_size, 0 if data.classes else data.output_size)
