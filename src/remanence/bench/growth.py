"""How training time grows when the sequence length, batch size or number of units doubles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .. import engines
from .apart import Maker
from .measure import Clock, milliseconds
from .shapes import BenchPlan, Shape
from .timings import Say, compile_together, over
from .work import Work, blank_task, rivals, why


@dataclass(frozen=True)
class Growth:
    """Time of a training step at twice the size over the time at the base size: 2 is linear growth, 1 no growth."""

    shape: Shape
    layer: str
    ran: str
    """The engine that ran."""
    training_ms: float | None = None
    steps: float | None = None
    """Time at 2T over time at T."""
    batch: float | None = None
    units: float | None = None
    reason: str | None = None


def growth(plan: BenchPlan, make: Maker, clock: Clock, say: Say) -> Iterator[Growth]:
    """Growth of torch's layer, and of ours on the engine that "auto" chooses."""
    if plan.growth is None:
        return
    base = plan.growth
    shapes = {
        "base": base,
        "steps": replace(base, steps=2 * base.steps),
        "batch": replace(base, batch=2 * base.batch),
        "units": replace(base, units=2 * base.units),
    }
    engine_of = dict.fromkeys(tuple(rivals(plan))[:1], "")  # against bfloat16, torch's bfloat16
    engine_of |= dict.fromkeys(plan.shown, "auto")
    rows = {
        layer: Growth(base, layer, engines.choose(name, blank_task(layer, base, plan)).name if name else "torch")
        for layer, name in engine_of.items()
    }
    if clock.left <= 0:
        spent = f"not measured: the budget of {plan.budget:.0f} s was spent"
        yield from (replace(row, reason=spent) for row in rows.values())
        return

    say(f"growth: {base.sizes}")
    try:
        works = {
            f"{layer}/{size}": make(layer, name, shape)
            for size, shape in shapes.items()
            for layer, name in engine_of.items()
        }
        if plan.device.type == "cuda":
            compile_together([work for work in works.values() if isinstance(work, Work)], plan.device)
        for work in works.values():
            work.train_ms()  # the first call warms up
        times = milliseconds({name: work.train_ms for name, work in works.items()}, clock.left * 0.6)
    except Exception as error:  # the other sections are still worth having
        yield from (replace(row, reason=why(error)) for row in rows.values())
        return
    for layer, row in rows.items():
        at = {size: times[f"{layer}/{size}"] for size in shapes}
        yield replace(
            row,
            training_ms=at["base"],
            steps=over(at["steps"], at["base"]),
            batch=over(at["batch"], at["base"]),
            units=over(at["units"], at["base"]),
        )
