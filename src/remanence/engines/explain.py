"""Explains which engine runs a layer, why, and with which derived code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..cells import GatedCell, PointwiseCell
from .base import EngineTask
from .choice import choose, fitted_to
from .kernels.contract import DERIVED, derivation
from .kernels.derive import cpp, derived, derived_cell, triton
from .table import KNOWN


class Layer(Protocol):
    """A layer that can build the task that it would pass to an engine."""

    engine: str

    def example_task(self, steps: int = 2, batch: int = 1, dt: bool = False) -> EngineTask:
        """A task as an engine would get it."""


@dataclass(frozen=True)
class Explanation:
    """How a layer runs. Printed, it is a short report with the derived source code."""

    engine: str
    """Name of the engine that runs the layer."""
    refusals: dict[str, str]
    """Why other engines cannot, by name, as the end of a sentence."""
    gate: str | None
    """Name of the layer's gate; None if it has none."""
    derived: str | None
    """What code is derived for: the gate or the whole cell, with its name."""
    sources: dict[str, str]
    """Source code derived from the equation, by language: "c++" (for the engines cuda and c++) and "triton"."""
    not_derived: str | None = None
    """Why no code could be derived, as the end of a sentence."""

    def __str__(self) -> str:
        lines = [f"engine: {self.engine}"]
        lines += [f"not {name}: {reason}" for name, reason in self.refusals.items()]
        if self.not_derived is not None:
            lines.append(f"no kernel for {self.derived}: {self.not_derived}")
        for language, source in self.sources.items():
            lines += ["", f"--- {self.derived} in {language} ---", source.strip()]
        return "\n".join(lines)


def explain(layer: Layer, steps: int = 100, batch: int = 32, dt: bool = False) -> Explanation:
    """Explain which engine runs a layer on inputs of this size, on the layer's device, and show its derived code.

    Args:
        layer: A layer of `remanence`.
        steps: Sequence length T.
        batch: Batch size B.
        dt: Whether the layer is called with dt.
    """
    task = layer.example_task(steps, batch, dt)
    chosen = choose(layer.engine, task)
    reasons = {name: fitted_to(engine, task).refuses(task) for name, engine in KNOWN.items()}
    refusals = {name: reason for name, reason in reasons.items() if reason is not None}
    if not isinstance(task.cell, PointwiseCell):
        return Explanation(chosen.name, refusals, None, None, {})
    known, gate = derivation(task.cell), task.cell.gate.name if isinstance(task.cell, GatedCell) else None
    reason = known.float32[int(dt and task.cell.takes_dt)]
    if reason is not None:
        return Explanation(chosen.name, refusals, gate, known.subject, {}, reason)
    if known.kind == DERIVED:
        cell = derived_cell(task.cell, dt)
        sources = {"c++": cpp.cell_source(cell), "triton": triton.cell_source(cell)}
    else:
        assert isinstance(task.cell, GatedCell)
        formulas = derived(task.cell.gate, dt)
        sources = {"c++": cpp.source(formulas), "triton": triton.source(formulas)}
    return Explanation(chosen.name, refusals, gate, known.subject, sources)
