"""Layers in processes of their own, as in a program that has only one of them.

In one process, a layer reuses memory that others have freed, and which ones these were depends on what is measured. On
an x86 CPU a training step of torch's LSTM that gets new pages from the system instead takes up to 1.4 times as long.

The processes take turns. In each, the first call is not measured: it finds threads asleep and caches filled by another
process. In training, steps follow one another.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import torch

from ..engines.kernels.pool import forget
from .shapes import BenchPlan, Shape
from .work import Measured, Work, make_work, rivals

Maker = Callable[[str, str, Shape], Measured]
"""Makes a layer of that name with that engine at that shape."""

IN_A_ROW = 2
"""Calls in a turn, the last of which is measured."""
REST = 0.005
"""Seconds that a process sleeps after a call, until its threads are idle: OpenMP's spin for a while."""


@contextmanager
def makers(plan: BenchPlan) -> Iterator[Maker]:
    """A maker of all layers of a plan: in this process, or, if the plan says so, in one process for each of them."""
    if not plan.apart:
        yield lambda layer, engine, shape: make_work(layer, engine, shape, plan)
        return
    with ExitStack() as stack:
        processes = {
            layer: stack.enter_context(
                ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (plan, torch.get_num_threads()))
            )
            for layer in (*rivals(plan), *plan.layers)
        }
        for ready in [process.submit(time.sleep, 0) for process in processes.values()]:  # they start side by side
            ready.result()
        yield lambda layer, engine, shape: WorkApart(processes[layer], layer, engine, shape)


class WorkApart:
    """A `Work` in another process."""

    def __init__(self, process: ProcessPoolExecutor, layer: str, engine: str, shape: Shape) -> None:
        self.process = process
        self.name = (layer, engine, shape)

    def warm(self) -> int:
        """See `Measured`."""
        return self.process.submit(_there, self.name, Work.warm).result()

    def infer_ms(self) -> float:
        """See `Measured`."""
        return self.process.submit(_there, self.name, Work.infer_ms, IN_A_ROW).result()

    def train_ms(self) -> float:
        """See `Measured`."""
        return self.process.submit(_there, self.name, Work.train_ms, IN_A_ROW).result()


# In the other process.

_plan: BenchPlan
_works: dict[tuple[str, str, Shape], Work] = {}

Number = TypeVar("Number", int, float)


def _begin(plan: BenchPlan, threads: int) -> None:
    """Prepare a new process."""
    global _plan
    _plan = plan
    torch.set_num_threads(threads)
    torch.default_generator.manual_seed(0)


def _there(name: tuple[str, str, Shape], measure: Callable[[Work], Number], calls: int = 1) -> Number:
    """Measure the last of a few calls of a layer, which is made at the first visit."""
    if name not in _works:
        forget()  # memory of another shape could be larger than needed
        _works[name] = make_work(*name, _plan)
    found = [measure(_works[name]) for _ in range(calls)]
    time.sleep(REST)
    return found[-1]
