"""Generates C++ for the engines `cuda` and `c++`: the gate functions that cells.cuh calls, or a whole cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .cell import DerivedCell
from .expression import Expression, constant, variable
from .gate import DerivedGate
from .printing import CPP, Printer

TYPES = """
struct GateStep { float forget, complement, carried[CARRIED + !CARRIED], kept; };
struct GateSlopes { float forget, complement, own[SLOPES + !SLOPES]; };
struct GateBack { float z[ROWS], carried[CARRIED + !CARRIED], fixed[FIXED + !FIXED], dt; };
"""
OF_STEP = "const float* z, const float* carried, const float* fixed, float dt"
OF_CELL = "const float* z, float hn, State now"


def source(gate: DerivedGate) -> str:
    """The functions of a gate: fixed values, one step, its slopes, backward, and gradients of the weights."""
    decided = {"forget": gate.forget, "complement": gate.complement}
    after = {f"carried[{i}]": part for i, part in enumerate(gate.carried)}
    after["kept"] = variable("z0") if gate.kept is None else gate.kept
    slopes = {f"own[{i}]": slope for i, slope in enumerate(gate.slopes)}
    places, by = gate.places(), gate.derivatives()
    back = {places[name]: derivative for name, derivative in by.items()} | {"dt": by.get("dt", constant(0.0))}
    return "\n".join(
        (
            f"constexpr int ROWS = {gate.rows};\n{counts(gate)}{TYPES}",
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


def counts(of: DerivedGate | DerivedCell) -> str:
    """Array sizes in the functions' arguments and results, as C++ constants."""
    counted = {"CARRIED": of.carries, "OWN": of.weights, "FIXED": len(of.fixed), "SLOPES": len(of.slopes)}
    return f"constexpr int {', '.join(f'{name} = {count}' for name, count in counted.items())};\n"


def cell_source(cell: DerivedCell) -> str:
    """The functions of a cell: fixed values, one step, its slopes, backward, and gradients of the weights."""
    step = {"hidden": cell.hidden, "cell": cell.cell} | _numbered("carried", cell.carried)
    z, carried, fixed = (
        _numbered(name, [cell.derivative(f"{name}{i}") for i in range(count)])
        for name, count in (("z", cell.blocks), ("carried", cell.carries), ("fixed", len(cell.fixed)))
    )
    back = z | {name: cell.derivative(name) for name in ("hn", "cell", "dt")} | carried | fixed
    return "\n".join(
        (
            "struct CellSlopes { float own[SLOPES + !SLOPES]; };\n",
            _filling(cell, "gate_fixed(const float* own, float* fixed)", "fixed", cell.fixed),
            _returning(cell, "State", f"derived_forward({OF_CELL}, const float* fixed, float dt, float beta)", step),
            _returning(
                cell,
                "CellSlopes",
                f"derived_slopes({OF_CELL}, float after, const float* fixed, float dt, float beta)",
                _numbered("own", cell.slopes),
            ),
            _returning(
                cell,
                "CellBack",
                "derived_backward(const CellSlopes& slopes, float d_hidden, float d_cell, const float* d_carried)",
                back,
            ),
            _filling(
                cell,
                "gate_own(const float* own, const float* d_fixed, float* d_own)",
                "d_own",
                cell.derivatives_by_own(),
            ),
        )
    )


def _numbered(name: str, values: Sequence[Expression]) -> dict[str, Expression]:
    return {f"{name}[{i}]": value for i, value in enumerate(values)}


def _places(of: DerivedGate | DerivedCell) -> dict[str, str]:
    """How variables are written in the code."""
    if isinstance(of, DerivedGate):
        return of.places()
    words = {"z": "z", "carried": "now.carried", "fixed": "fixed", "own": "own", "slope": "slopes.own"}
    words |= {"d_carried": "d_carried", "d_fixed": "d_fixed"}
    most = max(of.blocks, of.carries, len(of.fixed), of.weights, len(of.slopes))
    single = {name: name for name in ("hn", "dt", "d_hidden", "d_cell")} | {"cell": "now.cell"}
    return {f"{word}{i}": f"{place}[{i}]" for word, place in words.items() for i in range(most)} | single


def _slopes_of_kept(gate: DerivedGate) -> str:
    """Slopes from the saved value of the row, which is the row itself for most gates."""
    head = f"gate_slopes_of_kept({OF_STEP})"
    if gate.kept is None:
        return _function(f"GateSlopes {head}", ["return gate_slopes(z, carried, fixed, dt);"])
    return _returning(
        gate, "GateSlopes", head, dict(zip(("forget", "complement", "own[0]"), gate.from_kept, strict=True))
    )


def _returning(of: DerivedGate | DerivedCell, kind: str, head: str, fields: Mapping[str, Expression]) -> str:
    """A function that returns a struct with these fields."""
    printer = Printer(CPP, _places(of))
    values = printer.values(list(fields.values()))
    filled = [f"found.{name} = {value};" for name, value in zip(fields, values, strict=True)]
    return _function(f"{kind} {head}", [*printer.lines, f"{kind} found = {{}};", *filled, "return found;"])


def _filling(of: DerivedGate | DerivedCell, head: str, name: str, results: Sequence[Expression]) -> str:
    """A function that fills an array."""
    printer = Printer(CPP, _places(of))
    values = printer.values(results)
    return _function(f"void {head}", [*printer.lines, *(f"{name}[{i}] = {value};" for i, value in enumerate(values))])


def _function(head: str, lines: Sequence[str]) -> str:
    return "\n".join([f"__device__ __forceinline__ {head} {{", *(f"    {line}" for line in lines), "}\n"])
