"""A gate in Triton's language.

    gate_fixed(own) -> what its own weights come to, the same in every step
    gate_forward(z, carried, fixed, dt) -> forget, complement, carried after the step
    gate_slopes(z, carried, fixed, dt) -> forget, complement, slopes: all that does not wait for derivatives
    gate_backward(slope, d_forget, d_carried) -> d_z, d_carried, d_fixed, d_dt
    gate_own(own, d_fixed) -> derivatives by the weights

All are (rows, units) float32 tiles, and tuples of them, which have at least one entry: zeros where there is nothing.
d_forget holds the derivative by the complement too, which is 1 - forget.
"""

from __future__ import annotations

from collections.abc import Sequence

from .expression import Expression, constant, variables
from .gate import DerivedGate
from .printing import TRITON, Printer

OF_STEP = "z, carried, fixed, dt"


def source(gate: DerivedGate) -> str:
    """The five functions."""
    by = gate.derivatives()
    d_z, d_carried, d_fixed = (
        [by[f"{name}{i}"] for i in range(count)]
        for name, count in (("z", gate.rows), ("carried", gate.carries), ("fixed", len(gate.fixed)))
    )
    functions = (
        _function(gate, "fixed", "own", "own[0]", [gate.fixed]),
        _function(gate, "forward", OF_STEP, "z[0]", [gate.forget, gate.complement, gate.carried]),
        _function(gate, "slopes", OF_STEP, "z[0]", [gate.forget, gate.complement, gate.slopes]),
        _function(
            gate,
            "backward",
            "slope, d_forget, d_carried",
            "d_forget",
            [d_z, d_carried, d_fixed, by.get("dt", constant(0.0))],
        ),
        _function(gate, "own", "own, d_fixed", "own[0]", [gate.derivatives_by_own()]),
    )
    return "\n\n".join(functions)


def _function(
    gate: DerivedGate, name: str, arguments: str, like: str, results: Sequence[Expression | Sequence[Expression]]
) -> str:
    """A function that returns values, and tuples of values, of the shape of `like`."""
    printer = Printer(TRITON, gate.places())
    flat = [part for result in results for part in ([result] if isinstance(result, Expression) else result)]
    written = dict(zip(flat, printer.values(flat), strict=True))

    def value(part: Expression) -> str:
        return written[part] if any(variables([part])) else f"zero + {written[part]}"

    returned = [
        value(result) if isinstance(result, Expression) else f"({', '.join(map(value, result)) or 'zero'},)"
        for result in results
    ]
    lines = [f"zero = tl.zeros_like({like})", *printer.lines, f"return {', '.join(returned)}"]
    return "\n".join(["@triton.jit", f"def gate_{name}({arguments}):", *(f"    {line}" for line in lines), ""])
