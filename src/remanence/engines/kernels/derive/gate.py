"""Derives everything that kernels need of a gate: its formula, loop-invariant values, and slopes (derivatives)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ....gates import Gate
from ....gates.sound import alone
from .evaluate import evaluated
from .expression import Expression, constant, variable, where
from .fixed import by_weights, hoisted, partials, sums_by_weights
from .memoised import memoised
from .trace import NotDerivableError, formulas

ROWS, UNITS = 3, 5
"""Sizes of the tensors that a gate is traced with: different, so that no dimension is mistaken for the other."""
OTHER_ROWS, OTHER_UNITS = 2, 7
"""Sizes of the tensors that check its formula: a gate may not depend on the number of rows or units."""
SEVERAL = 4
"""Standard deviation of the random pre-activations that compare a formula with its gate."""


@dataclass(frozen=True, eq=False)
class DerivedGate:
    """A gate as formulas of `z0`, `z1`, ... (its rows), `carried0`, ..., `fixed0`, ... and `dt`.

    Values that depend on the gate's per-unit weights alone are the same in every step: `fixed0`, ..., formulas of
    `own0`, ... They are computed once. Their gradients are summed over all steps, then propagated to the weights.
    """

    rows: int
    carries: int
    weights: int
    has_dt: bool
    forget: Expression
    complement: Expression
    carried: tuple[Expression, ...]
    """Values after the step."""
    fixed: tuple[Expression, ...]
    slopes: tuple[Expression, ...]
    """All local derivatives that are not constant. They do not depend on the incoming gradients, so kernels compute
    them before the gradients of a step arrive."""
    by_forget: Mapping[str, Expression]
    """Derivatives of the forget value, by source: formulas of `slope0`, ... or constants; zeros are left out."""
    by_carried: tuple[Mapping[str, Expression], ...]
    """The same for each carried value."""
    by_own: tuple[tuple[Expression, ...], ...]
    """Derivatives of each fixed value with respect to each of the weights."""
    kept: Expression | None = None
    """Value to save for the backward pass instead of the only row, if the gate defines one."""
    from_kept: tuple[Expression, ...] = ()
    """Forget value, complement and derivative with respect to the row, where `z0` is the saved value."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the variables that a step depends on."""
        names = [f"z{i}" for i in range(self.rows)] + [f"carried{i}" for i in range(self.carries)]
        return (*names, *(f"fixed{i}" for i in range(len(self.fixed))), *(("dt",) if self.has_dt else ()))

    @property
    def digest(self) -> str:
        """A digest of everything that a step computes: equal for equal formulas, in every process."""
        parts = (self.forget, self.complement, *self.carried, *self.fixed, *self.slopes)
        parts += (*self.from_kept, *(() if self.kept is None else (self.kept,)))
        counts = f"{self.rows} {self.carries} {self.weights} "  # the formula may not use all of them
        keys = b"".join(part.key for part in parts)
        return hashlib.blake2b(counts.encode() + keys, digest_size=12).hexdigest()

    def derivatives(self) -> dict[str, Expression]:
        """Gradients of all sources, from `slope0`, ..., `d_forget` and `d_carried0`, ..."""
        outputs = [("d_forget", self.by_forget), *((f"d_carried{i}", by) for i, by in enumerate(self.by_carried))]
        found = {}
        for source in self.sources:
            total = constant(0.0)
            for name, by in outputs:
                if source in by:
                    total = total + variable(name) * by[source]
            found[source] = total
        return found

    def derivatives_by_own(self) -> list[Expression]:
        """Gradients of the weights, from `d_fixed0`, ..."""
        return sums_by_weights(self.by_own, self.weights)

    def places(self) -> dict[str, str]:
        """How variables are written in the code: as array elements, `z0` as `z[0]`."""
        counts = {"z": self.rows, "carried": self.carries, "fixed": len(self.fixed), "own": self.weights}
        counts |= {"slope": len(self.slopes), "d_carried": self.carries, "d_fixed": len(self.fixed)}
        names = {f"{word}{i}": f"{word}[{i}]" for word, count in counts.items() for i in range(count)}
        return names | {"dt": "dt", "d_forget": "d_forget"}


def derived(gate: Gate, has_dt: bool, dtype: torch.dtype = torch.float32) -> DerivedGate:
    """The gate as formulas; raises NotDerivableError with the reason if there are none."""
    found = memoised(gate, (has_dt, dtype), lambda: _attempt(gate, has_dt, dtype))
    if isinstance(found, str):
        raise NotDerivableError(found)
    return found


def why_not(gate: Gate, has_dt: bool = False, dtype: torch.dtype = torch.float32) -> str | None:
    """Why a gate cannot be derived, as the end of a sentence; None if it can."""
    try:
        derived(gate, has_dt, dtype)
    except NotDerivableError as error:
        return str(error)
    return None


def unpaddable(gate: Gate, has_dt: bool = False) -> str | None:
    """Why a derived gate cannot be evaluated for padding units, as the end of a sentence; None if it can.

    Padding units receive no input and start from zero. Their results are multiplied by zero and discarded, so they must
    be finite.
    """
    return None if _rests(derived(gate, has_dt)) else "its value or a derivative of it at zero is not finite"


@lru_cache(maxsize=256)
def _rests(gate: DerivedGate) -> bool:
    with alone():
        return _is_finite_at_zero(gate)


def _is_finite_at_zero(gate: DerivedGate) -> bool:
    one = torch.ones((), dtype=torch.float32, device="cpu")
    given = {f"z{i}": 0 * one for i in range(gate.rows)} | {f"carried{i}": 0 * one for i in range(gate.carries)}
    given |= {f"own{i}": 0.7 * one for i in range(gate.weights)} | ({"dt": 0.7 * one} if gate.has_dt else {})
    given |= {f"fixed{i}": value for i, value in enumerate(evaluated(gate.fixed, given))}
    for _ in range(2):
        decided = evaluated([gate.forget, gate.complement, *gate.slopes, *gate.carried], given)
        if not all(bool(value.isfinite()) for value in decided):
            return False
        given |= {f"carried{i}": value for i, value in enumerate(decided[len(decided) - gate.carries :])}
    return True


def _attempt(gate: Gate, has_dt: bool, dtype: torch.dtype) -> DerivedGate | str:
    try:
        with alone(), torch.device("cpu"):
            return _derived(gate, has_dt, dtype)
    except NotDerivableError as error:
        return str(error)
    except Exception as error:  # a user-defined gate: the loop engine will run it, or show where it fails
        return f"it raised {type(error).__name__} on sample tensors: {str(error).strip().partition(chr(10))[0]}"


def _derived(gate: Gate, has_dt: bool, dtype: torch.dtype) -> DerivedGate:
    given = _sample(gate, has_dt, dtype, seed=0)
    by_hand: list[str] = []

    def called(**tensors: Tensor) -> list[Tensor]:
        slopes = gate.slopes(*_arguments(gate, tensors))
        by_hand[:] = [f"z{gate.rows.index(row)}" for row in slopes]
        return [*_called(gate, tensors), *slopes.values()]

    outputs = formulas(called, given)
    own = [f"own{i}" for i in range(len(gate.per_unit))]
    _compare(gate, has_dt, dtype, outputs[: 2 + len(gate.carries)])
    outputs, fixed = hoisted(outputs, own)
    forget, complement, *rest = outputs
    carried, slopes_by_hand = rest[: len(gate.carries)], rest[len(gate.carries) :]
    sources = [name for name in (*given, *(f"fixed{i}" for i in range(len(fixed)))) if name not in own]
    by_forget = _slopes_of_smaller(forget, complement, sources) | dict(zip(by_hand, slopes_by_hand, strict=True))
    by_carried = [partials(part, sources) for part in carried]
    slopes: list[Expression] = []

    def named(by: Mapping[str, Expression]) -> dict[str, Expression]:
        found = {}
        for source, slope in by.items():
            if not slope.is_constant():
                if slope not in slopes:
                    slopes.append(slope)
                slope = variable(f"slope{slopes.index(slope)}")
            found[source] = slope
        return found

    named_forget, named_carried = named(by_forget), tuple(map(named, by_carried))
    by_own = by_weights(fixed, own)
    _compare_slopes(gate, has_dt, [by_forget, *by_carried], fixed, by_own)
    return DerivedGate(
        len(gate.rows),
        len(gate.carries),
        len(own),
        has_dt,
        forget,
        complement,
        tuple(carried),
        tuple(fixed),
        tuple(slopes),
        named_forget,
        named_carried,
        tuple(map(tuple, by_own)),
        *_kept(gate, given),
    )


def _kept(gate: Gate, given: Mapping[str, Tensor]) -> tuple[Expression | None, tuple[Expression, ...]]:
    """The value that a gate saves instead of its only row, see `Gate.kept`, checked against the gate and autograd."""
    row = given["z0"].detach()
    if (found := gate.kept(row)) is None or len(gate.rows) > 1 or gate.carries or gate.per_unit:
        return None, ()
    (kept,) = formulas(lambda z0: [_there(gate.kept(z0))[0]], {"z0": row})
    again = formulas(lambda z0: found[1](z0), {"z0": row})
    wide = row.double().requires_grad_()
    with torch.enable_grad():
        forget, complement, *_ = _called(gate, {"z0": wide})
        (slope,) = torch.autograd.grad(forget.sum(), wide)
    with torch.no_grad():
        (value,) = evaluated([kept], {"z0": wide.detach()})
        values = evaluated(again, {"z0": value})
    for mine, true in zip(values, (forget, complement, slope), strict=True):
        if not torch.allclose(mine, true.detach(), rtol=1e-6, atol=1e-9):
            raise NotDerivableError("the results of its method kept differ from those of its equation")
    return kept, tuple(again)


def _there(found: Any) -> Any:
    assert found is not None
    return found


def _called(gate: Gate, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Forget value, complement and carried values, from tensors by their names in formulas."""
    found = gate(*_arguments(gate, tensors))
    return (found.forget, found.complement, *found.carried)


def _arguments(gate: Gate, tensors: Mapping[str, Tensor]) -> tuple[Any, ...]:
    pre = tuple(tensors[f"z{i}"] for i in range(len(gate.rows)))
    carried = tuple(tensors[f"carried{i}"] for i in range(len(gate.carries)))
    weights = {name: tensors[f"own{i}"] for i, name in enumerate(gate.per_unit)}
    return pre, carried, weights, tensors.get("dt")


def _sample(
    gate: Gate, has_dt: bool, dtype: torch.dtype, seed: int, rows: int = ROWS, units: int = UNITS
) -> dict[str, Tensor]:
    source = torch.Generator("cpu").manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source, dtype=torch.float64, device="cpu").to(dtype)

    given = {f"z{i}": SEVERAL * draw(rows, units) for i in range(len(gate.rows))}
    given |= {f"carried{i}": draw(rows, units).abs() for i in range(len(gate.carries))}
    given |= {f"own{i}": draw(units) for i in range(len(gate.per_unit))}
    return given | ({"dt": draw(rows, 1).abs()} if has_dt else {})


def _compare(gate: Gate, has_dt: bool, dtype: torch.dtype, outputs: list[Expression]) -> None:
    """Check the formula against the gate: it was traced on one sample and must hold for others."""
    given = _sample(gate, has_dt, dtype, seed=1, rows=OTHER_ROWS, units=OTHER_UNITS)
    with torch.no_grad():
        expected = _called(gate, given)
    tolerance = 64 * torch.finfo(dtype).eps
    for found, other in zip(evaluated(outputs, given), expected, strict=True):
        if not torch.allclose(found.expand_as(other), other, rtol=tolerance, atol=tolerance, equal_nan=True):
            raise NotDerivableError("its result depends on more than the operations that it calls")


def _compare_slopes(
    gate: Gate, has_dt: bool, by: list[dict[str, Expression]], fixed: list[Expression], by_own: list[list[Expression]]
) -> None:
    """Check the derivatives of the formula against autograd, in float64."""
    given = {name: value.requires_grad_() for name, value in _sample(gate, has_dt, torch.float64, seed=2).items()}
    with torch.enable_grad():
        outputs = _called(gate, given)
        outputs = (outputs[0], *outputs[2:])
        none = sum(value.sum() for value in given.values()) * 0.0  # an output may be a constant
        expected = [
            torch.autograd.grad(part.sum() + none, list(given.values()), retain_graph=True, materialize_grads=True)
            for part in outputs
        ]
    with torch.no_grad():
        values = {name: value.detach() for name, value in given.items()}
        values |= {f"fixed{i}": value for i, value in enumerate(evaluated(fixed, values))}
        for slopes, truth in zip(by, expected, strict=True):
            found = dict(zip(slopes, evaluated(list(slopes.values()), values), strict=True))
            full = {name: slope.expand(ROWS, UNITS) for name, slope in found.items()}
            for name, true in zip(given, truth, strict=True):
                mine = full.get(name, torch.zeros(ROWS, UNITS, dtype=torch.float64, device="cpu"))
                if name.startswith("own"):
                    rows = evaluated([row[int(name.removeprefix("own"))] for row in by_own], values)
                    mine = sum((full[f"fixed{i}"] * row for i, row in enumerate(rows) if f"fixed{i}" in full), mine)
                summed = mine.sum_to_size(true.shape)
                if not torch.allclose(summed, true, rtol=1e-6, atol=1e-9, equal_nan=True):
                    raise NotDerivableError(f"the gradient of its formula for {name} differs from autograd")


def _slopes_of_smaller(forget: Expression, complement: Expression, sources: list[str]) -> dict[str, Expression]:
    """Derivatives of the forget value, from the complement where that is smaller, because it is more precise there.

    If both have the same formula, the choice is simplified away.
    """
    of_forget, of_complement = partials(forget, sources), partials(-complement, sources)
    smaller = forget <= complement
    zero = constant(0.0)
    found = {
        name: where(smaller, of_forget.get(name, zero), of_complement.get(name, zero))
        for name in sources
        if name in of_forget or name in of_complement
    }
    return {name: slope for name, slope in found.items() if not slope.is_constant(0.0)}
