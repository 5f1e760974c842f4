"""User-defined cells for tests: each has a feature that the others do not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from remanence.cells import GatedCell, LSTMCell, Step, Weights
from remanence.gates import Fast, Gate, PowerLaw, Sigmoid


@dataclass(frozen=True)
class Peephole(LSTMCell):
    """Peephole connections: gates that depend on the cell state, through additional per-unit weights."""

    name: ClassVar[str] = "peephole"
    projects: ClassVar[bool] = False

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        own = dict.fromkeys(("look_input", "look_forget", "look_output"), (hidden_size,))
        return super().shapes(input_size, hidden_size, output_size, bias) | own

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        _, cell, *carried = state
        rows = self.rows(projected + recurrent)
        driver = self.gate.rows[0]
        rows[driver] = rows[driver] + weights["look_forget"] * cell
        kept = self.forgetting(rows, tuple(carried), weights, dt)
        written = torch.sigmoid(rows["input"] + weights["look_input"] * cell)
        cell = kept.forget * cell + written * torch.tanh(rows["candidate"])
        hidden = torch.sigmoid(rows["output"] + weights["look_output"] * cell) * torch.tanh(cell)
        return Step((hidden, cell, *kept.carried), {"cell": cell, "forget": kept.forget})


@dataclass(frozen=True)
class Minimal(GatedCell):
    """A minimal gated unit: two blocks, one with separate input and recurrent parts, and only a hidden state."""

    gate: Gate

    name: ClassVar[str] = "minimal"

    @property
    def blocks(self) -> tuple[str, ...]:
        return (*self.gate.rows, "candidate")

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return {"hidden": hidden_size} | dict.fromkeys(self.gate.carries, hidden_size)

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        hidden, *carried = state
        kept = self.forgetting(self.rows(projected + recurrent), tuple(carried), weights, dt)
        units = hidden.shape[-1]
        candidate = torch.tanh(
            projected[..., -units:] + kept.complement * recurrent.narrow(-1, recurrent.shape[-1] - units, units)
        )
        hidden = kept.forget * hidden + kept.complement * candidate
        return Step((hidden, *kept.carried), {"cell": hidden, "forget": kept.forget})


@dataclass(frozen=True)
class Ticking(GatedCell):
    """A clock that is a scalar per sequence, times between steps, and a block without activation function."""

    gate: Gate

    name: ClassVar[str] = "ticking"

    @property
    def takes_dt(self) -> bool:
        return True

    @property
    def blocks(self) -> tuple[str, ...]:
        return ("candidate", *self.gate.rows)

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return {"hidden": hidden_size, "cell": hidden_size, "clock": 1}

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        return super().shapes(input_size, hidden_size, output_size, bias) | {"pace": (hidden_size,)}

    def initialise(self, weights: dict[str, Tensor]) -> None:
        super().initialise(weights)
        weights["pace"].uniform_(0.1, 1.0)

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        _, cell, clock = state
        clock = clock + (1.0 if dt is None else dt)
        rows = self.rows(projected + recurrent)
        kept = self.forgetting(rows, (), weights, dt)
        swing = torch.sin(clock * weights["pace"].exp())
        cell = kept.forget * cell + kept.complement * torch.nn.functional.softsign(rows["candidate"]) * swing
        return Step((torch.asinh(cell), cell, clock), {"cell": cell, "forget": kept.forget})


@dataclass(frozen=True)
class Shared(GatedCell):
    """Blocks and parts of the state whose gradients are equal, or equal with the opposite sign."""

    gate: Gate
    sign: float = 1.0

    name: ClassVar[str] = "shared"

    @property
    def blocks(self) -> tuple[str, ...]:
        return (*self.gate.rows, "one", "other")

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return {"hidden": hidden_size, "cell": hidden_size}

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        hidden, cell = state
        rows = self.rows(projected + recurrent)
        kept = self.forgetting(rows, (), weights, dt)
        added = torch.tanh(rows["one"] + self.sign * rows["other"])
        cell = kept.forget * (cell + self.sign * hidden) + kept.complement * added
        return Step((torch.tanh(cell), cell), {"cell": cell, "forget": kept.forget})


OWN: dict[str, GatedCell] = {
    "peephole": Peephole(Sigmoid()),
    "peephole power law": Peephole(PowerLaw()),
    "minimal": Minimal(Sigmoid()),
    "minimal power law": Minimal(PowerLaw()),
    "ticking": Ticking(Fast()),
    "summed": Shared(Sigmoid()),
    "subtracted": Shared(Sigmoid(), sign=-1.0),
}
