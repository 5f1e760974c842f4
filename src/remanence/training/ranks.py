"""The processes that train one run together, as `torchrun` starts them.

The gradients of all replicas are one flat tensor, so an all-reduce of it is all that is needed: what
`DistributedDataParallel` would add are buckets and hooks for parameters that are not views into one tensor.
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
"""How long a rank waits for the others: one evaluates while they wait. Should one die, torchrun ends the others."""
SET_BY_TORCHRUN = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class AgreedError(ValueError):
    """Something is wrong on one rank, and all have heard of it: all end, and the first one says why."""


class Ranks:
    """This process among those that train together; by default there are no others.

    Args:
        rank: of this process, from 0.
        size: number of processes.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    @classmethod
    def join(cls) -> Self:
        """Meet the processes that torchrun has started; without it, there are none."""
        size = os.environ.get("WORLD_SIZE", "1")
        if size == "1":
            return cls()
        import torch.distributed as dist

        missing = [name for name in SET_BY_TORCHRUN if not os.environ.get(name)]
        if missing or not size.isdigit():
            got = f"no {missing[0]}" if missing else f"WORLD_SIZE={size}"
            raise ValueError(f"expected {', '.join(SET_BY_TORCHRUN)} as torchrun sets them, got {got}")
        if not dist.is_available():
            raise ValueError(f"expected one process, since this torch has no torch.distributed, got {size}")
        with_nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if with_nccl else "gloo", timeout=PATIENCE)
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return self.size == 1

    @property
    def first(self) -> bool:
        """Whether this is the process that evaluates, writes files and talks."""
        return self.rank == 0

    def device(self, name: str | None) -> torch.device:
        """The device of this rank; each has a GPU of its own.

        Args:
            name: cpu, cuda or, where there are no others, cuda:N; None for CUDA where there is one.
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

    # What all do at the same time.

    def told(self, work: Callable[[], Result]) -> Result:
        """What the first rank gets from this work, for all; what it is refused with, all raise."""
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
        """What this rank gets from work that all do; if one is refused, all raise what it was refused with."""
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
        return found  # type: ignore[return-value]  # nothing was refused

    def highest(self, number: int) -> int:
        """The highest of the numbers that ranks have."""
        if self.alone:
            return number
        import torch.distributed as dist

        value = torch.tensor(number)
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return int(value)

    def add_up(self, *tensors: Tensor) -> None:
        """Put the sums over all ranks into these tensors."""
        if self.alone:
            return
        import torch.distributed as dist

        for tensor in tensors:
            dist.all_reduce(tensor)

    def spread(self, tensor: Tensor) -> None:
        """Put the values of the first rank into this tensor."""
        if not self.alone:
            import torch.distributed as dist

            dist.broadcast(tensor, src=0)

    def joined(self, part: Tensor, sizes: Sequence[int], dimension: int) -> Tensor:
        """The parts of all ranks as one tensor, the same bits.

        Args:
            part: of this rank.
            sizes: of the parts of all ranks in that dimension.
            dimension: along which parts follow each other.
        """
        if self.alone:
            return part
        import torch.distributed as dist

        parts = []
        for rank, size in enumerate(sizes):  # gloo gathers parts of one size only
            shape = list(part.shape)
            shape[dimension] = size
            other = part.contiguous() if rank == self.rank else part.new_empty(shape)
            dist.broadcast(other, src=rank)
            parts.append(other)
        return torch.cat(parts, dimension)

    def agreed(self, error: ValueError) -> bool:
        """Whether all ranks raise this error."""
        return self.alone or isinstance(error, AgreedError)

    def leave(self) -> None:
        """Wait for all, and part: as soon as one process ends with an error, torchrun ends the others."""
        if self.alone:
            return
        import torch.distributed as dist

        self.highest(0)
        dist.destroy_process_group()


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
