"""The processes that train one run together, as started by `torchrun`, and the share of a batch of each.

The gradients of all replicas are one flat tensor, so a single all-reduce is enough. The buckets and hooks of
`DistributedDataParallel` serve parameters that are not views into one tensor.

Every rank draws the whole batch, as a single process does, and takes its own sequences. The loss of the whole batch is
a mean over everything that counts in it, so the mean of every rank is weighted by its fraction of these counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from ..engines.machine import device_named
from ..models import states
from ..nn.dropout import part_of_batch
from ..tasks.base import Batch, Task
from .config import Training

Result = TypeVar("Result")
PATIENCE = timedelta(days=1)
"""How long a rank waits for the others while the first one evaluates. If a rank dies, torchrun ends the others."""
SET_BY_TORCHRUN = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class AgreedError(ValueError):
    """An error on one rank that all ranks raise: all end, and the first reports it."""


class Ranks:
    """The group of processes that train together; by default this process alone.

    Args:
        rank: Rank of this process, from 0.
        size: Number of processes.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    @classmethod
    def join(cls) -> Self:
        """Join the process group of torchrun; without torchrun, a group of one."""
        size = os.environ.get("WORLD_SIZE", "1")
        if size == "1":
            return cls()
        import torch.distributed as dist

        missing = [name for name in SET_BY_TORCHRUN if not os.environ.get(name)]
        if missing or not size.isdigit():
            got = f"no {missing[0]}" if missing else f"WORLD_SIZE={size}"
            raise ValueError(f"expected {', '.join(SET_BY_TORCHRUN)} as torchrun sets them, got {got}")
        if not dist.is_available():
            raise ValueError(f"expected one process because this torch has no torch.distributed, got {size}")
        with_nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if with_nccl else "gloo", timeout=PATIENCE)
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def alone(self) -> bool:
        """Whether this is the only process."""
        return self.size == 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which evaluates, writes files and reports."""
        return self.rank == 0

    def device(self, name: str | None) -> torch.device:
        """The device of this rank; every rank has its own GPU.

        Args:
            name: cpu, cuda or, for a single process, cuda:N; None for CUDA if available.
        """
        name = name or ("cuda" if torch.cuda.is_available() else "cpu")
        if self.alone or name == "cpu":
            return device_named(name)
        if name != "cuda":
            raise ValueError(f"expected cpu or cuda under torchrun, where every process has its own GPU, got {name}")
        device_named(name)
        here, found = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
        if here > found:
            raise ValueError(f"expected a GPU for each of {here} processes on a machine, got {found}")
        device = device_named(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(device)
        return device

    # Collectives: every rank makes the same call.

    def told(self, work: Callable[[], Result]) -> Result:
        """Run `work` on rank 0 and broadcast its result. If it raises a `ValueError`, all ranks raise."""
        if self.alone:
            return work()
        import torch.distributed as dist

        said: list[Any] = [None, None]
        if self.first:
            try:
                said[0] = work()
            except ValueError as error:
                said[1] = str(error)
        dist.broadcast_object_list(said, src=0)
        if said[1] is not None:
            raise AgreedError(said[1])
        found: Result = said[0]
        return found

    def alike(self, work: Callable[[], Result]) -> Result:
        """Run `work` on every rank. If it raises a `ValueError` on any rank, all ranks raise."""
        if self.alone:
            return work()
        import torch.distributed as dist

        found, problem = None, None
        try:
            found = work()
        except ValueError as error:
            problem = str(error)
        problems: list[str | None] = [None] * self.size
        dist.all_gather_object(problems, problem)
        for other in problems:
            if other is not None:
                raise AgreedError(other)
        return found  # type: ignore[return-value]  # no rank raised

    def highest(self, number: int) -> int:
        """The maximum of a number over all ranks."""
        if self.alone:
            return number
        import torch.distributed as dist

        value = torch.tensor(number)
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return int(value)

    def add_up(self, *tensors: Tensor) -> None:
        """All-reduce these tensors: sum over all ranks, in place."""
        if self.alone:
            return
        import torch.distributed as dist

        for tensor in tensors:
            dist.all_reduce(tensor)

    def spread(self, tensor: Tensor) -> None:
        """Broadcast this tensor from rank 0, in place."""
        if not self.alone:
            import torch.distributed as dist

            dist.broadcast(tensor, src=0)

    def joined(self, part: Tensor, sizes: Sequence[int], dimension: int) -> Tensor:
        """All-gather: the parts of all ranks concatenated, bit for bit.

        Args:
            part: Tensor of this rank.
            sizes: Sizes of the parts of all ranks in that dimension.
            dimension: Dimension to concatenate along.
        """
        if self.alone:
            return part
        import torch.distributed as dist

        parts = []
        for rank, size in enumerate(sizes):  # gloo gathers only tensors of equal size
            shape = list(part.shape)
            shape[dimension] = size
            other = part.contiguous() if rank == self.rank else part.new_empty(shape)
            dist.broadcast(other, src=rank)
            parts.append(other)
        return torch.cat(parts, dimension)

    def agreed(self, error: ValueError) -> bool:
        """Whether every rank raises this error."""
        return self.alone or isinstance(error, AgreedError)

    def leave(self) -> None:
        """Leave the group once all ranks have arrived: as soon as one exits with an error, torchrun ends the others."""
        if self.alone:
            return
        import torch.distributed as dist

        self.highest(0)
        dist.destroy_process_group()


def expect_enough(configs: Iterable[Training], ranks: Ranks) -> None:
    """Refuse batch sizes that leave a rank without sequences."""
    for config in configs:
        if config.batch < ranks.size:
            raise ValueError(
                f"expected training.batch to be at least the number of processes ({ranks.size}), got {config.batch}"
            )


def expect_own_dropout(model: nn.Module, ranks: Ranks) -> None:
    """Refuse dropout inside recurrent layers of torch.nn with several ranks: each would draw its own mask."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase) and module.dropout > 0 and not ranks.alone:
            name = type(module).__name__
            raise ValueError(
                f"expected one process, or remanence.{name} for dropout between layers, got {ranks.size} processes and "
                f"torch.nn.{name} with dropout={module.dropout}"
            )


class Share:
    """The sequences of a batch that belong to this rank: as many as on the others, or one more.

    Args:
        ranks: Ranks that share a batch.
        batch: Size B of the whole batch.
    """

    def __init__(self, ranks: Ranks, batch: int) -> None:
        self.ranks = ranks
        self.batch = batch
        each, more = divmod(batch, ranks.size)
        self.sizes = [each + (rank < more) for rank in range(ranks.size)]
        self.start = sum(self.sizes[: ranks.rank])
        self.size = self.sizes[ranks.rank]

    def of(self, batch: Batch, task: Task) -> Batch:
        """The sequences of this rank, from the batch `(R, T, B, I)` of all replicas."""
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
        """The contribution of this rank to the loss, and to the objective with penalties, `(R,)` each.

        Args:
            losses: Means over everything that counts in the sequences of this rank.
            penalties: Means over its sequences.
            task: Task that is learned.
            batch: The whole batch.
        """
        if not self.ranks.alone:
            own, all_ = (task.counted(part) for part in (self.of(batch, task), batch))
            losses = torch.where(own > 0, losses * (own.to(losses.dtype) / all_), 0)  # without counts the mean is NaN
            penalties = None if penalties is None else penalties * (self.size / self.batch)
        return losses, losses if penalties is None else losses + penalties

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let dropout draw its mask for the whole batch, as a single process does."""
        if self.ranks.alone:
            yield
            return
        with part_of_batch(self.start, self.batch):
            yield

    # Carried states, each `(layers, B, H)`.

    def joined(self, state: Any) -> Any:
        """The state of all sequences, gathered from all ranks."""
        if state is None or self.ranks.alone:
            return state
        return states.each(lambda part: self.ranks.joined(part, self.sizes, 1), state)

    def of_state(self, state: Any) -> Any:
        """The state of this rank's sequences."""
        if state is None or self.ranks.alone:
            return state
        return states.each(lambda part: part.narrow(1, self.start, self.size).contiguous(), state)
