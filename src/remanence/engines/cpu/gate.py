"""A gate on this engine, from its derived formula: one step, and its slopes over a stretch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...cells import Weights
from ...gates import Gate
from ..kernels.derive import DerivedGate, derived
from ..kernels.derive.evaluate import evaluated
from ..kernels.derive.expression import Expression, apply, constant, ordered, substituted, variable
from .buffers import Scratch
from .program import FormulaProgram, program


class Reading(NamedTuple):
    """The tensors that a gate reads and writes: at one step, `(B, H)` each, or over a stretch, `(steps, B, H)` each."""

    rows: tuple[Tensor, ...]
    """The gate's pre-activations, times `signs`, with the sigmoid already applied to those in `logistic`. A step may
    overwrite them with a more useful value, see `Gate.kept`."""
    before: tuple[Tensor, ...]
    """The gate's state before the step."""
    after: tuple[Tensor, ...]
    """The gate's state after the step, written by the step."""
    kept: tuple[Tensor, ...]
    """Other values that a step saves for its slopes, see `GateKernel.kept`."""
    per_unit: Mapping[str, Tensor]
    """The values that depend only on its weights, `(H,)` each."""
    dt: Tensor | None
    """`(B, 1)` or `(steps, B, 1)`; None for unit steps."""


class Decision(NamedTuple):
    """The results of a gate, in the shape of its inputs."""

    forget: Tensor
    complement: Tensor | None = None
    """1 - forget, if the gate was created with `complement`."""

    @property
    def written(self) -> Tensor:
        """The complement, which must exist."""
        assert self.complement is not None
        return self.complement


@dataclass(frozen=True)
class GateSlopes:
    """Partial derivatives that a gate fills in for a stretch, each `(steps, B, H)`.

    Sources are the names of its rows, of its state before the step, of the values that depend only on its weights, and
    "dt". A missing source does not need a gradient. Derivatives of the complement are the negative of those of the
    forget value.
    """

    forget: Mapping[str, Tensor]
    """Derivatives of the forget value, by source."""
    state: Mapping[str, Mapping[str, Tensor]]
    """Derivatives of each part of the state after the step, by source."""


Decide = Callable[[int], Decision]
"""Evaluates a gate at a step, by its index."""

SMOOTH = frozenset({"add", "mul", "neg", "where", "lt", "le"})
"""Operations that lose no precision if sigmoid(z) is computed as 1 - sigmoid(-z)."""


class GateKernel:
    """A gate: one step, and its slopes.

    Args:
        gate: Gate to evaluate.
        complement: Whether `1 - forget` is needed, precise also where forget rounds to one.
        dt: Whether times between steps are given.
        dtype: Dtype of all tensors.
    """

    def __init__(self, gate: Gate, complement: bool, dt: bool, dtype: torch.dtype) -> None:
        self.gate = gate
        self.complement = complement
        self.dtype = dtype
        self.derived = derived(gate, dt, dtype)
        parts = _programs(self.derived, complement)
        self.signs, self.logistic = parts.signs, parts.logistic
        self.kept = ("complement",) if parts.keeps_complement else ()
        """Names of the values that a step saves besides its state."""
        self._parts = parts
        self._names = {variable: name for name, variable in self._variables().items()}
        self.depends = {
            state: tuple(dict.fromkeys([*(self._names[source] for source in by if source != "dt"), state]))
            for state, by in zip(gate.carries, self.derived.by_carried, strict=True)
        }
        """For every part of its state, the sources that it depends on (besides dt), and the part itself, which does not
        change after the end of a sequence."""

    def _variables(self) -> dict[str, str]:
        """Variables of the formula, by their names on this engine."""
        named = {name: f"z{i}" for i, name in enumerate(self.gate.rows)}
        named |= {name: f"carried{i}" for i, name in enumerate(self.gate.carries)}
        return named | {f"fixed{i}": f"fixed{i}" for i in range(len(self.derived.fixed))} | {"dt": "dt"}

    def per_unit(self, weights: Weights) -> dict[str, Tensor]:
        """The values that depend only on its weights, computed by differentiable operations."""
        own = {f"own{i}": weights[name].to(self.dtype) for i, name in enumerate(self.gate.per_unit)}
        if not self.derived.fixed:
            return {}
        values = evaluated(self.derived.fixed, own)
        return {f"fixed{i}": value for i, value in enumerate(values)}

    def stepper(self, read: Reading, turn: Callable[[Tensor], Sequence[Tensor]], scratch: Scratch) -> Decide:
        """A function that runs one step of a stretch in these buffers, by its index in processing order.

        Args:
            read: Tensors of the whole stretch.
            turn: Splits a tensor into steps, in processing order.
            scratch: Buffers of one step.
        """
        run = self._parts.forward.bound(scratch)
        given = self._given(read)
        left = read.rows if self._parts.leaves_row else ()
        places = [turn(place) for place in (*read.kept, *read.after, *left)]
        steps = [turn(given[name]) for name in self._parts.forward.variables] + places
        arguments, complement = list(zip(*steps, strict=True)), self.complement

        def decide(t: int) -> Decision:
            found = run(*arguments[t])
            return Decision(found[0], found[1] if complement else None)

        return decide

    def slopes(self, read: Reading, slopes: GateSlopes, scratch: Scratch) -> Decision:
        """Fill the derivatives of all steps of a stretch; returns the results of the gate at these steps."""
        variables = self._variables()
        wanted: list[tuple[Expression, Tensor]] = []
        for by, places in (
            (self.derived.by_forget, slopes.forget),
            *zip(self.derived.by_carried, slopes.state.values(), strict=True),
        ):
            for name, place in places.items():
                slope = by.get(variables[name])
                if slope is None or slope.is_constant():
                    place.fill_(0.0 if slope is None else self._sign(name) * slope.number)
                    continue
                formula = self._parts.slopes[int(str(slope.value).removeprefix("slope"))]
                wanted.append((formula if self._sign(name) > 0 else -formula, place))
        outputs = (*self._parts.decided, *(formula for formula, _ in wanted))
        first = len(self._parts.decided)
        backward = program(outputs, tuple(range(first, len(outputs))), "backward")
        given = self._given(read)
        run = backward.bound(scratch, len(read.rows[0]))
        found = run(*(given[name] for name in backward.variables), *(place for _, place in wanted))
        return Decision(found[0], found[1] if self.complement else None)

    def _sign(self, source: str) -> int:
        return self.signs[self.gate.rows.index(source)] if source in self.gate.rows else 1

    def _given(self, read: Reading) -> dict[str, Tensor]:
        given = {f"z{i}": row for i, row in enumerate(read.rows)}
        given |= {f"carried{i}": part for i, part in enumerate(read.before)}
        given |= dict(zip(self.kept, read.kept, strict=True))
        # Expanded to the common shape, because values that depend on these alone use the same buffers.
        given |= {name: value.expand_as(read.rows[0]) for name, value in read.per_unit.items()}
        return given if read.dt is None else given | {"dt": read.dt.expand_as(read.rows[0])}


class _Programs(NamedTuple):
    signs: tuple[int, ...]
    """The factor, 1 or -1, that the engine applies to each row. It costs nothing, because the weights are negated."""
    logistic: tuple[bool, ...]
    """Rows to which the engine applies the sigmoid beforehand, in one call with those of the cell."""
    keeps_complement: bool
    leaves_row: bool
    """Whether a step overwrites its row with the value that slopes are computed from."""
    forward: FormulaProgram
    decided: tuple[Expression, ...]
    slopes: tuple[Expression, ...]


@lru_cache(maxsize=256)
def _programs(gate: DerivedGate, complement: bool) -> _Programs:
    decided = [gate.forget, *([gate.complement] if complement else [])]
    first = len(decided)
    if gate.kept is not None:
        left = program((*decided, gate.kept), (first,), "forward")
        again = (*gate.from_kept[:first], gate.from_kept[2])
        return _Programs((1,), (False,), False, True, left, again[:first], again[first:])
    forward, backward = [*decided, *gate.carried], [*decided, *gate.slopes]
    signs, logistic = [], []
    for i in range(gate.rows):
        sign = logistic_sign(variable(f"z{i}"), forward)
        signs.append(sign or 1)
        logistic.append(sign is not None)
        if sign is not None:
            z = variable(f"z{i}")
            passed, other = ("sigmoid", "sigmoid_complement") if sign > 0 else ("sigmoid_complement", "sigmoid")
            replaced = {apply(passed, z): z, apply(other, z): constant(1.0) - z}
            forward, backward = substituted(forward, replaced), substituted(backward, replaced)
    # For a power, the complement has full precision, and the forget value follows from it without another logarithm.
    power = forward[1].inputs[0] if complement and forward[1].operation == "neg" else None
    keeps = power is not None and power.operation == "expm1"
    if keeps and power is not None:
        kept, exponent = variable("complement"), power.inputs[0]
        backward = substituted(backward, {power: -kept, apply("exp", exponent): constant(1.0) - kept})
    placed = range(first - keeps, len(forward))
    return _Programs(
        tuple(signs),
        tuple(logistic),
        keeps,
        False,
        program(tuple(forward), tuple(placed), "forward"),
        tuple(backward[:first]),
        tuple(backward[first:]),
    )


def logistic_sign(row: Expression, outputs: list[Expression]) -> int | None:
    """The sign with which the sigmoid can be applied to a row beforehand; None if the row is also used otherwise."""
    nodes = ordered(outputs)
    users = {node for node in nodes if row in node.inputs}
    kinds = {node.operation for node in users}
    if row in outputs or not kinds or not kinds <= {"sigmoid", "sigmoid_complement"}:
        return None
    if len(kinds) == 1:
        return 1 if kinds == {"sigmoid"} else -1
    dependent = set(users)
    for node in nodes:
        if dependent & set(node.inputs):
            if node.operation not in SMOOTH:
                return None
            dependent.add(node)
    return -1
