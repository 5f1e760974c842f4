"""Several seeds of one model trained together: time for N over time for one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .. import engines
from .layers import KNOWN as LAYERS
from .layers import projection
from .measure import Call, Clock, milliseconds, replayed, timed
from .shapes import BenchPlan, Shape
from .timings import Say, over
from .work import blank_task, make_inputs, why

COUNTS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Replicas:
    """A training step of several replicas."""

    shape: Shape
    layer: str
    count: int
    training_ms: float | None = None
    ratio: float | None = None
    """Time over that of one replica."""
    replayed_ms: float | None = None
    """Time of the same step as a CUDA graph; None on a CPU."""
    replayed_ratio: float | None = None
    reason: str | None = None


class Together:
    """A training step of several replicas, each with its own weights and inputs, in one call of the engine.

    The leading dimension of the weights is the replica, as in models that store them stacked. This measures the engine
    alone, without the time that autograd spends on accumulating gradients of many small parameters.
    """

    def __init__(self, layer: str, count: int, shape: Shape, plan: BenchPlan) -> None:
        tasks = []
        for _ in range(count):
            made = LAYERS[layer](shape.inputs, shape.units, device=plan.device, dtype=plan.dtype)
            blank = blank_task(layer, shape, plan)
            weights = {name.removesuffix("_l0"): weight.detach() for name, weight in made.named_parameters()}
            state = tuple(torch.zeros_like(part) for part in blank.first_state)
            tasks.append(replace(blank, weights=weights, inputs=make_inputs(shape, plan), state=state))
        self.task = tasks[0] if count == 1 else engines.stacked(tasks)
        self.run = engines.run_stacked if count > 1 else run_alone
        for leaf in self.leaves:
            leaf.requires_grad_()
        self.direction = torch.ones(*self.task.inputs.shape[:-1], shape.units, device=plan.device, dtype=plan.dtype)

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors whose gradients are computed."""
        return [self.task.inputs, *self.task.weights.values()]

    def __call__(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None
        self.run("auto", self.task).output.backward(self.direction)  # type: ignore[no-untyped-call]


def run_alone(name: str, task: engines.EngineTask) -> engines.EngineResult:
    """Run a single task."""
    return engines.run(name, [task])[0]


def takes_replicas(layer: str, shape: Shape, plan: BenchPlan) -> bool:
    """Whether the engine that "auto" chooses runs replicas side by side."""
    if projection(layer, shape.units):
        return False
    return engines.runs_side_by_side(engines.choose("auto", blank_task(layer, shape, plan)))


def replicas(plan: BenchPlan, clock: Clock, say: Say) -> Iterator[Replicas]:
    """Rows for every count, for layers whose engine runs replicas side by side."""
    shape = plan.growth
    if shape is None:
        return
    for layer in plan.shown:
        if not takes_replicas(layer, shape, plan):
            continue
        rows = [Replicas(shape, layer, count) for count in COUNTS]
        if clock.left <= 0:
            spent = f"not measured: the budget of {plan.budget:.0f} s was spent"
            yield from (replace(row, reason=spent) for row in rows)
            continue
        say(f"replicas: {layer}")
        try:
            made = {count: Together(layer, count, shape, plan) for count in COUNTS}
            for step in made.values():
                step()
            steps: dict[str, Call] = {str(count): step for count, step in made.items()}
            if plan.device.type == "cuda":
                steps |= {f"{count} replayed": replayed(step) for count, step in made.items()}
            times: dict[str, float | None] = {**milliseconds(timed(steps, plan.device), clock.left / 4)}
        except Exception as error:  # the other sections are still worth having
            yield from (replace(row, reason=why(error)) for row in rows)
            continue
        for row in rows:
            time, device_time = times[str(row.count)], times.get(f"{row.count} replayed")
            yield replace(
                row,
                training_ms=time,
                ratio=over(time, times["1"]),
                replayed_ms=device_time,
                replayed_ratio=over(device_time, times.get("1 replayed")),
            )
