"""Every layer and engine against `torch.nn.LSTM`, shape by shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from .. import engines
from ..engines.machine import threads
from .apart import Maker
from .measure import Clock, milliseconds
from .shapes import FEW_STEPS, BenchPlan, Shape
from .work import Measured, Work, blank_task, rival, rivals, why

Say = Callable[[str], None]


@dataclass(frozen=True)
class Timing:
    """One layer on one engine at one shape, with torch's layer from the same run. None means not measured."""

    shape: Shape
    layer: str
    engine: str
    """The requested engine: "auto" or a name; empty for torch's own layer."""
    ran: str
    """The engine that ran."""
    forward_ms: float | None = None
    training_ms: float | None = None
    torch_forward_ms: float | None = None
    torch_training_ms: float | None = None
    bytes_per_step: float | None = None
    """Memory of a training step divided by T."""
    torch_bytes_per_step: float | None = None
    reason: str | None = None
    """Why a value is missing."""

    @property
    def forward_ratio(self) -> float | None:
        """Torch's time over ours: above 1, ours is faster."""
        return over(self.torch_forward_ms, self.forward_ms)

    @property
    def training_ratio(self) -> float | None:
        """Torch's time over ours: above 1, ours is faster."""
        return over(self.torch_training_ms, self.training_ms)

    @property
    def memory_ratio(self) -> float | None:
        """Torch's memory over ours: above 1, ours uses less."""
        return over(self.torch_bytes_per_step, self.bytes_per_step)


def over(a: float | None, b: float | None) -> float | None:
    """a / b, or None if either is unknown."""
    return None if a is None or not b else a / b


def timings(plan: BenchPlan, make: Maker, clock: Clock, say: Say) -> Iterator[Timing]:
    """Measure all shapes of a plan, each within its share of the remaining time."""
    sections = len(plan.shapes) + (plan.growth is not None)
    for index, shape in enumerate(plan.shapes):
        say(f"{shape.name}: {shape.sizes}")
        yield from at(shape, plan, make, clock, sections - index, say)
        if plan.device.type == "cuda":
            torch.cuda.empty_cache()


def at(shape: Shape, plan: BenchPlan, make: Maker, clock: Clock, shares: int, say: Say) -> list[Timing]:
    """Measure all layers and engines at one shape, within 1 / `shares` of the time that compilation leaves."""
    try:
        everything: dict[Timing, Measured | None] = {}
        for row in (*(Timing(shape, name, "", "torch") for name in rivals(plan)), *candidates(shape, plan)):
            everything[row] = None if row.reason else make(row.layer, row.engine, shape)
    except Exception as error:
        return [Timing(shape, layer, "auto", "", reason=why(error)) for layer in plan.layers]
    if plan.device.type == "cuda" and clock.left > 0:
        say(f"{shape.name}: compiling")
        compile_together([work for work in everything.values() if isinstance(work, Work)], plan.device)

    rows: list[Timing] = []
    ready: dict[str, Measured] = {}
    for row, work in everything.items():
        if work is None:
            rows.append(row)
            continue
        say(f"{shape.name}: warming up {row.layer} {row.ran}")
        row = warm(row, work, plan, clock)
        if row.reason is None:
            ready[key(row)] = work
        rows.append(row)

    say(f"{shape.name}: measuring")
    share = Clock(clock.left / shares)
    try:
        forward = milliseconds({name: work.infer_ms for name, work in ready.items()}, share.left / 4)
        training = milliseconds({name: work.train_ms for name, work in ready.items()}, share.left * 0.8)
    except Exception as error:
        return [replace(row, reason=row.reason or why(error)) for row in rows]

    def best(row: Timing, of: Callable[[Timing], float | None]) -> float | None:
        """The best value among the torch layers that a row is compared with."""
        theirs = (of(other) for other in rows if other.engine == "" and rival(other.layer) == rival(row.layer))
        return min((value for value in theirs if value is not None), default=None)

    return [
        replace(
            row,
            forward_ms=forward.get(key(row)),
            training_ms=training.get(key(row)),
            torch_forward_ms=best(row, lambda other: forward.get(key(other))),
            torch_training_ms=best(row, lambda other: training.get(key(other))),
            torch_bytes_per_step=best(row, lambda other: other.bytes_per_step),
        )
        for row in rows
    ]


def key(row: Timing) -> str:
    """A unique name for a row of one shape."""
    return f"{row.layer}/{row.engine}"


def candidates(shape: Shape, plan: BenchPlan) -> Iterator[Timing]:
    """Rows to measure. A row that cannot be measured has a reason."""
    for layer in plan.layers:
        try:
            task = blank_task(layer, shape, plan)
        except ValueError as error:  # a number of units that the layer does not support
            yield Timing(shape, layer, "auto", "", reason=str(error))
            continue
        refusals = {name: engines.fitted_to(engine, task).refuses(task) for name, engine in engines.KNOWN.items()}
        automatic = engines.choose("auto", task).name
        if plan.engines is not None:
            names = plan.engines
        else:
            others = [name for name, reason in refusals.items() if name != automatic and reason is None]
            names = ("auto", *(name for name in others if name != "loop" or shape.steps <= FEW_STEPS))
        for name in names:
            if name == "auto":
                yield Timing(shape, layer, name, automatic)
            else:
                yield Timing(shape, layer, name, name, reason=refusals[name])


def warm(row: Timing, work: Measured, plan: BenchPlan, clock: Clock) -> Timing:
    """Warm up a layer with one forward and one training step; returns its row with the memory, or with the error."""
    if clock.left <= 0:
        return replace(row, reason=f"not measured: the budget of {plan.budget:.0f} s was spent")
    try:
        size = work.warm()
    except Exception as error:  # one row that fails must not cost the others
        return replace(row, reason=why(error))
    return replace(row, bytes_per_step=size / row.shape.steps)


def compile_together(works: list[Work], device: torch.device) -> None:
    """Run all layers once in threads, so that kernels compile in parallel. Errors are ignored: they recur in `warm`."""

    def once(work: Work) -> None:
        try:
            with torch.cuda.device(device):
                work.infer()
                work.train()
        except Exception:
            return

    with threads(device) as pool:
        list(pool.map(once, works))
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
