"""A gate as C++, for the engines `cuda` and `c++`: the functions that cells.cuh is written around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .expression import Expression, constant, variable
from .gate import DerivedGate
from .printing import CPP, Printer

TYPES = """
struct GateStep { float forget, complement, carried[CARRIED + !CARRIED], kept; };
struct GateSlopes { float forget, complement, own[SLOPES + !SLOPES]; };
struct GateBack { float z[ROWS], carried[CARRIED + !CARRIED], fixed[FIXED + !FIXED], dt; };
"""
OF_STEP = "const float* z, const float* carried, const float* fixed, float dt"


def source(gate: DerivedGate) -> str:
    """Fixed values of the weights, one step, its slopes, derivatives from these, and by the weights."""
    decided = {"forget": gate.forget, "complement": gate.complement}
    after = {f"carried[{i}]": part for i, part in enumerate(gate.carried)}
    after["kept"] = variable("z0") if gate.kept is None else gate.kept
    slopes = {f"own[{i}]": slope for i, slope in enumerate(gate.slopes)}
    places, by = gate.places(), gate.derivatives()
    back = {places[name]: derivative for name, derivative in by.items()} | {"dt": by.get("dt", constant(0.0))}
    return "\n".join(
        (
            _counts(gate),
            _filling(gate, "gate_fixed(const float* own, float* fixed)", "fixed", gate.fixed),
            _returning(gate, "GateStep", f"gate_forward({OF_STEP})", decided | after),
            _returning(gate, "GateSlopes", f"gate_slopes({OF_STEP})", decided | slopes),
            _slopes_of_kept(gate),
            _returning(
                gate, "GateBack", "gate_backward(const float* slope, float d_forget, const float* d_carried)", back
            ),
            _filling(
                gate,
                "gate_own(const float* own, const float* d_fixed, float* d_own)",
                "d_own",
                gate.derivatives_by_own(),
            ),
        )
    )


def _counts(gate: DerivedGate) -> str:
    counts = {
        "ROWS": gate.rows,
        "CARRIED": gate.carries,
        "OWN": gate.weights,
        "FIXED": len(gate.fixed),
        "SLOPES": len(gate.slopes),
    }
    return f"constexpr int {', '.join(f'{name} = {count}' for name, count in counts.items())};\n{TYPES}"


def _slopes_of_kept(gate: DerivedGate) -> str:
    """Slopes from what is kept of the row: the row itself, for most gates."""
    head = f"gate_slopes_of_kept({OF_STEP})"
    if gate.kept is None:
        return _function(f"GateSlopes {head}", ["return gate_slopes(z, carried, fixed, dt);"])
    return _returning(
        gate, "GateSlopes", head, dict(zip(("forget", "complement", "own[0]"), gate.from_kept, strict=True))
    )


def _returning(gate: DerivedGate, kind: str, head: str, fields: Mapping[str, Expression]) -> str:
    """A function that returns a structure with these fields."""
    printer = Printer(CPP, gate.places())
    values = printer.values(list(fields.values()))
    filled = [f"found.{name} = {value};" for name, value in zip(fields, values, strict=True)]
    return _function(f"{kind} {head}", [*printer.lines, f"{kind} found;", *filled, "return found;"])


def _filling(gate: DerivedGate, head: str, name: str, results: Sequence[Expression]) -> str:
    """A function that fills an array."""
    printer = Printer(CPP, gate.places())
    values = printer.values(results)
    return _function(f"void {head}", [*printer.lines, *(f"{name}[{i}] = {value};" for i, value in enumerate(values))])


def _function(head: str, lines: Sequence[str]) -> str:
    return "\n".join([f"__device__ __forceinline__ {head} {{", *(f"    {line}" for line in lines), "}\n"])
