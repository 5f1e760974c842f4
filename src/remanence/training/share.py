"""The share of a batch that one of several processes learns from.

Every rank draws the whole batch, as one process does, and takes its sequences. The loss of the whole batch is a mean
over all that counts in it, so every rank's mean goes into the sum with the share of what counts that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..nn.dropout import part_of_batch
from ..tasks.base import Batch, Task
from . import states
from .config import Training
from .ranks import Ranks


def expect_enough(configs: Iterable[Training], ranks: Ranks) -> None:
    """Refuse batches that leave a rank without sequences."""
    for config in configs:
        if config.batch < ranks.size:
            raise ValueError(
                f"expected training.batch to be at least the number of processes ({ranks.size}), got {config.batch}"
            )


def expect_own_dropout(model: nn.Module, ranks: Ranks) -> None:
    """Refuse dropout inside of torch's own layers over several ranks: each would draw for itself."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase) and module.dropout > 0 and not ranks.alone:
            name = type(module).__name__
            raise ValueError(
                f"expected one process, or remanence.{name} for dropout between layers, got {ranks.size} processes and "
                f"torch.nn.{name} with dropout={module.dropout}"
            )


class Share:
    """The sequences of a batch that this rank has: as many as the others, or one more.

    Args:
        ranks: between which a batch is split.
        batch: sequences B of a whole batch.
    """

    def __init__(self, ranks: Ranks, batch: int) -> None:
        self.ranks = ranks
        self.batch = batch
        each, more = divmod(batch, ranks.size)
        self.sizes = [each + (rank < more) for rank in range(ranks.size)]
        self.start = sum(self.sizes[: ranks.rank])
        self.size = self.sizes[ranks.rank]

    def of(self, batch: Batch, task: Task) -> Batch:
        """This rank's sequences of batches side by side, `(R, T, B, I)` and so on."""
        if self.ranks.alone:
            return batch
        dimensions = {"inputs": 2, "dt": 2, "counts": 2, "mask": 2, "lengths": 1, "groups": 1}
        dimensions["targets"] = 2 if task.readout == "every" else 1
        parts = {
            name: value.narrow(dimensions[name], self.start, self.size).contiguous()
            for name, value in vars(batch).items()
            if value is not None
        }
        return Batch(**parts)

    def weighted(self, losses: Tensor, penalties: Tensor | None, task: Task, batch: Batch) -> tuple[Tensor, Tensor]:
        """What this rank adds to losses, and to what is minimised, `(R,)` each.

        Args:
            losses: means over what counts in this rank's sequences.
            penalties: means over its sequences.
            task: what is learned.
            batch: the whole batch.
        """
        if not self.ranks.alone:
            own, all_ = (task.counted(part) for part in (self.of(batch, task), batch))
            losses = torch.where(own > 0, losses * (own.to(losses.dtype) / all_), 0)  # nothing counts: no mean
            penalties = None if penalties is None else penalties * (self.size / self.batch)
        return losses, losses if penalties is None else losses + penalties

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let dropout draw for the whole batch, as one process does."""
        if self.ranks.alone:
            yield
            return
        with part_of_batch(self.start, self.batch):
            yield

    # Carried states, each `(layers, B, H)`.

    def joined(self, state: Any) -> Any:
        """The state of all sequences, from that of every rank's."""
        if state is None or self.ranks.alone:
            return state
        return states.each(lambda part: self.ranks.joined(part, self.sizes, 1), state)

    def of_state(self, state: Any) -> Any:
        """The state of this rank's sequences."""
        if state is None or self.ranks.alone:
            return state
        return states.each(lambda part: part.narrow(1, self.start, self.size).contiguous(), state)
