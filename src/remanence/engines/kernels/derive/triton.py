"""Generates Triton code for a gate.

    gate_fixed(own) -> values that depend only on its per-unit weights, the same in every step
    gate_forward(z, carried, fixed, dt) -> forget, complement, carried after the step
    gate_slopes(z, carried, fixed, dt) -> forget, complement, slopes: everything that does not wait for gradients
    gate_backward(slope, d_forget, d_carried) -> d_z, d_carried, d_fixed, d_dt
    gate_own(own, d_fixed) -> gradients of the weights

Or for a whole cell, with the interface of triton/cells.py:

    gate_fixed and gate_own as above
    cell_forward(z, hn, cell, carried, fixed, dt, ...) -> hidden, cell, carried after the step
    cell_slopes(z, hn, cell, carried, fixed, dt, ...) -> slopes, and a placeholder tuple of zeros
    cell_backward(slopes, of_gate, d_hidden, d_cell, d_carried, ...) -> d_z, d_hn, d_cell, d_carried, d_fixed, d_dt

All are (rows, units) float32 tiles, or tuples of them with at least one entry, which is zero if there is nothing to
return. d_forget includes the gradient of the complement, which is 1 - forget.
"""

from __future__ import annotations

from collections.abc import Sequence

from .cell import DerivedCell
from .expression import Expression, constant, variables
from .gate import DerivedGate
from .printing import TRITON, Printer

OF_STEP = "z, carried, fixed, dt"


def source(gate: DerivedGate) -> str:
    """The five functions of a gate."""
    by = gate.derivatives()
    d_z, d_carried, d_fixed = (
        [by[f"{name}{i}"] for i in range(count)]
        for name, count in (("z", gate.rows), ("carried", gate.carries), ("fixed", len(gate.fixed)))
    )
    functions = (
        _function(gate, "gate_fixed", "own", "own[0]", [gate.fixed]),
        _function(gate, "gate_forward", OF_STEP, "z[0]", [gate.forget, gate.complement, gate.carried]),
        _function(gate, "gate_slopes", OF_STEP, "z[0]", [gate.forget, gate.complement, gate.slopes]),
        _function(
            gate,
            "gate_backward",
            "slope, d_forget, d_carried",
            "d_forget",
            [d_z, d_carried, d_fixed, by.get("dt", constant(0.0))],
        ),
        _function(gate, "gate_own", "own, d_fixed", "own[0]", [gate.derivatives_by_own()]),
    )
    return "\n\n".join(functions)


GATE = "GATE: tl.constexpr, ROWS: tl.constexpr, COUPLED: tl.constexpr"
"""Parameters about the gate, which hand-written cells need; derived cells ignore them."""


def cell_source(cell: DerivedCell) -> str:
    """The five functions of a cell."""
    d_z, d_carried, d_fixed = (
        [cell.derivative(f"{name}{i}") for i in range(count)]
        for name, count in (("z", cell.blocks), ("carried", cell.carries), ("fixed", len(cell.fixed)))
    )
    d_hn, d_cell, d_dt = (cell.derivative(name) for name in ("hn", "cell", "dt"))
    of_step = f"z, hn, cell, carried, fixed, dt, {GATE}, BETA: tl.constexpr"
    functions = (
        _function(cell, "gate_fixed", "own", "own[0]", [cell.fixed]),
        _function(cell, "cell_forward", of_step, "z[0]", [cell.hidden, cell.cell, cell.carried]),
        _function(cell, "cell_slopes", of_step, "z[0]", [cell.slopes, ()]),
        _function(
            cell,
            "cell_backward",
            f"slope, of_gate, d_hidden, d_cell, d_carried, {GATE}",
            "d_hidden",
            [d_z, d_hn, d_cell, d_carried, d_fixed, d_dt],
        ),
        _function(cell, "gate_own", "own, d_fixed", "own[0]", [cell.derivatives_by_own()]),
    )
    return "\n\n".join(functions)


def _places(of: DerivedGate | DerivedCell) -> dict[str, str]:
    """How variables are written in the code."""
    if isinstance(of, DerivedGate):
        return of.places()
    words = ("z", "carried", "fixed", "own", "slope", "d_carried", "d_fixed")
    most = max(of.blocks, of.carries, len(of.fixed), of.weights, len(of.slopes))
    single = {name: name for name in ("hn", "cell", "dt", "d_hidden", "d_cell")}
    return {f"{word}{i}": f"{word}[{i}]" for word in words for i in range(most)} | single


def _function(
    of: DerivedGate | DerivedCell,
    name: str,
    arguments: str,
    like: str,
    results: Sequence[Expression | Sequence[Expression]],
) -> str:
    """A function that returns values and tuples of values with the shape of `like`."""
    printer = Printer(TRITON, _places(of))
    flat = [part for result in results for part in ([result] if isinstance(result, Expression) else result)]
    written = dict(zip(flat, printer.values(flat), strict=True))

    def value(part: Expression) -> str:
        return written[part] if any(variables([part])) else f"zero + {written[part]}"

    returned = [
        value(result) if isinstance(result, Expression) else f"({', '.join(map(value, result)) or 'zero'},)"
        for result in results
    ]
    lines = [f"zero = tl.zeros_like({like})", *printer.lines, f"return {', '.join(returned)}"]
    return "\n".join(["@triton.jit", f"def {name}({arguments}):", *(f"    {line}" for line in lines), ""])
