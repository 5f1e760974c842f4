"""Several seeds of one model trained together: time for N over time for one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from .. import engines
from .measure import Clock, milliseconds
from .shapes import LAYERS, Plan, Shape
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
    """Over the time of one replica."""
    reason: str | None = None


class Together:
    """A training step of several replicas, each with weights and inputs of its own, in one call of the engine."""

    def __init__(self, layer: str, count: int, shape: Shape, plan: Plan) -> None:
        self.tasks: list[engines.Task] = []
        for _ in range(count):
            made = LAYERS[layer](shape.inputs, shape.units, device=plan.device, dtype=plan.dtype)
            blank = blank_task(made.cell, shape, plan)
            weights = {name.removesuffix("_l0"): weight for name, weight in made.named_parameters()}
            state = tuple(torch.zeros_like(part) for part in blank.first_state)
            inputs = make_inputs(shape, plan).requires_grad_()
            self.tasks.append(replace(blank, weights=weights, inputs=inputs, state=state))
        size = (shape.steps, shape.batch, shape.units)
        self.direction = torch.ones(size, device=plan.device, dtype=plan.dtype)

    def __call__(self) -> None:
        for task in self.tasks:
            for leaf in (task.inputs, *task.weights.values()):
                leaf.grad = None
        results = engines.run("auto", self.tasks)
        torch.autograd.backward([result.output for result in results], [self.direction] * len(results))


def takes_replicas(layer: str, shape: Shape, plan: Plan) -> bool:
    """Whether the engine that "auto" takes runs replicas side by side."""
    engine = engines.choose("auto", blank_task(LAYERS[layer](1, 1).cell, shape, plan))
    return hasattr(engine, "run_together")


def replicas(plan: Plan, clock: Clock, say: Say) -> Iterator[Replicas]:
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
            steps = {str(count): Together(layer, count, shape, plan) for count in COUNTS}
            for step in steps.values():
                step()
            times = milliseconds(steps, plan.device, clock.left / 4)
        except Exception as error:  # the other sections are still worth having
            yield from (replace(row, reason=why(error)) for row in rows)
            continue
        for row in rows:
            time = times[str(row.count)]
            yield replace(row, training_ms=time, ratio=over(time, times["1"]))
