"""Derives everything that kernels need of a cell, including its gate: formulas of one step and its backward pass.

The most important cells of this package, LSTM, GRU and JANET, have hand-written steps around a derived gate. Every
other cell whose step is one recurrent matmul and a pointwise update is derived as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

import torch
from torch import Tensor

from ....cells import Cell, PointwiseCell
from ....gates.sound import alone
from ...machine import seeded
from .back import way_back
from .evaluate import evaluated
from .expression import Expression, apply, constant, substituted, variable, variables
from .fixed import by_weights, hoisted, sums_by_weights
from .memoised import memoised
from .trace import NotDerivableError, formulas

ROWS, UNITS, INPUTS = 3, 5, 2
"""Sizes of the tensors that a cell is traced with: all different, so that no dimension is mistaken for another."""
OTHER_ROWS, OTHER_UNITS = 2, 7
ONE_AT_A_TIME = Lock()
"""Held while torch's global generator is used and restored."""
MATRICES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""Weights that a cell does not see: they are applied before its pointwise update."""


class CellLayout:
    """How the state and weights of a cell map to the names that kernels use.

    Kernels always carry a value named `cell` in registers, and then `carried0`, ...: `cell` is the hidden state again
    if the update uses it, as in a GRU, and otherwise the first part of the state besides the hidden state.

    Args:
        cell: Any cell with one recurrent matmul.
    """

    def __init__(self, cell: PointwiseCell) -> None:
        if type(cell).step is not PointwiseCell.step or type(cell).project is not Cell.project:
            raise NotDerivableError("it overrides step or project besides pointwise")
        count, shapes = len(cell.blocks), cell.shapes(INPUTS, UNITS, UNITS, True)
        expected: dict[str, tuple[int, ...]] = {
            "weight_ih": (count * UNITS, INPUTS),
            "weight_hh": (count * UNITS, UNITS),
        }
        expected |= {name: (count * UNITS,) for name in shapes if name in MATRICES[2:]}
        for name, shape in shapes.items():
            if tuple(shape) != expected.get(name, (UNITS,)):
                raise NotDerivableError(f"its weight {name} is {tuple(shape)} at {UNITS} units, not one value per unit")
        self.own = tuple(name for name in shapes if name not in MATRICES)
        widths = cell.widths(UNITS, UNITS)
        for name, width in widths.items():
            if width not in (1, UNITS):
                raise NotDerivableError(f"its state {name} has width {width} at {UNITS} units, not one value per unit")
        self.state = tuple(widths)
        self.single = tuple(width == 1 for width in widths.values())
        """Which parts of the state are a scalar per sequence."""


@dataclass(frozen=True, eq=False)
class DerivedCell:
    """A cell as formulas of `z0`, ... (blocks), `hn`, `cell`, `carried0`, ..., `fixed0`, ... and `dt`.

    The names are those of `DerivedGate`. `hn` is the recurrent part of the block `split`, whose z is then the input
    part alone; for all other blocks z is the sum of both.
    """

    blocks: int
    split: int
    """The block whose input and recurrent part are separate, or -1."""
    twice: bool
    """Whether `cell` is the hidden state again."""
    single: tuple[bool, ...]
    """Which carried values are a scalar per sequence."""
    own: tuple[str, ...]
    """Names of its per-unit weights."""
    has_dt: bool
    hidden: Expression
    """Value after the step, as are the next two."""
    cell: Expression
    carried: tuple[Expression, ...]
    fixed: tuple[Expression, ...]
    slopes: tuple[Expression, ...]
    """Local derivatives: everything in the backward pass that does not depend on the incoming gradients."""
    back: Mapping[str, Expression]
    """Gradients of every source, from `slope0`, ..., `d_hidden`, `d_cell` and `d_carried0`, ..."""
    by_own: tuple[tuple[Expression, ...], ...]
    """Derivatives of each fixed value with respect to each of the weights."""

    @property
    def carries(self) -> int:
        """Number of carried values besides hidden state and cell."""
        return len(self.carried)

    @property
    def weights(self) -> int:
        """Number of per-unit weights."""
        return len(self.own)

    @property
    def digest(self) -> str:
        """A digest of everything that a step computes: equal for equal formulas, in every process."""
        counts = f"{self.blocks} {self.split} {self.twice} {self.single} {self.weights} "
        parts = (self.hidden, self.cell, *self.carried, *self.fixed, *self.slopes, *self.back.values())
        return hashlib.blake2b(counts.encode() + b"".join(part.key for part in parts), digest_size=12).hexdigest()

    def derivative(self, source: str) -> Expression:
        """The gradient of a source; zero if the step does not depend on it."""
        return self.back.get(source, constant(0.0))

    def derivatives_by_own(self) -> list[Expression]:
        """Gradients of the weights, from `d_fixed0`, ..."""
        return sums_by_weights(self.by_own, self.weights)


def derived_cell(cell: PointwiseCell, has_dt: bool, dtype: torch.dtype = torch.float32) -> DerivedCell:
    """The cell as formulas; raises NotDerivableError with the reason if there are none."""
    found = memoised(cell, (has_dt, dtype), lambda: _attempt(cell, has_dt, dtype))
    if isinstance(found, str):
        raise NotDerivableError(found)
    return found


def why_no_cell(cell: PointwiseCell, has_dt: bool = False, dtype: torch.dtype = torch.float32) -> str | None:
    """Why a cell cannot be derived, as the end of a sentence; None if it can."""
    try:
        derived_cell(cell, has_dt, dtype)
    except NotDerivableError as error:
        return str(error)
    return None


def unpaddable_cell(cell: PointwiseCell, has_dt: bool = False) -> str | None:
    """Why a derived cell cannot be evaluated for padding units, see `gate.unpaddable`."""
    found = derived_cell(cell, has_dt)
    return None if _rests(found) else "its state or a derivative of it at zero is not finite"


@lru_cache(maxsize=256)
def _rests(cell: DerivedCell) -> bool:
    with alone(), torch.no_grad():
        one = torch.ones((), dtype=torch.float32, device="cpu")
        given = {f"z{i}": 0 * one for i in range(cell.blocks)} | {"hn": 0 * one, "cell": 0 * one}
        given |= {f"carried{i}": 0 * one for i in range(cell.carries)} | ({"dt": 0.7 * one} if cell.has_dt else {})
        given |= {f"own{i}": 0.7 * one for i in range(cell.weights)}
        given |= {f"fixed{i}": value for i, value in enumerate(evaluated(cell.fixed, given))}
        for _ in range(2):
            state = evaluated([cell.cell, *cell.carried], given)
            slopes = evaluated([cell.hidden, *cell.slopes], given)
            if not all(bool(value.isfinite()) for value in (*state, *slopes)):
                return False
            given |= dict(zip(["cell", *(f"carried{i}" for i in range(cell.carries))], state, strict=True))
    return True


def _attempt(cell: PointwiseCell, has_dt: bool, dtype: torch.dtype) -> DerivedCell | str:
    try:
        with alone(), torch.device("cpu"):
            return _derived(cell, has_dt, dtype)
    except NotDerivableError as error:
        return str(error)
    except Exception as error:  # a user-defined cell: the loop engine will run it, or show where it fails
        return f"it raised {type(error).__name__} on sample tensors: {str(error).strip().partition(chr(10))[0]}"


def _derived(cell: PointwiseCell, has_dt: bool, dtype: torch.dtype) -> DerivedCell:
    layout, count = CellLayout(cell), len(cell.blocks)
    given, wide = _sample(cell, layout, has_dt, dtype, seed=0)
    outputs = formulas(lambda **tensors: _called(cell, layout, tensors), given, wide)
    _compare(cell, layout, has_dt, dtype, outputs)
    outputs, split = _with_sums(outputs, count)
    own = [f"own{i}" for i in range(len(layout.own))]
    outputs, fixed = hoisted(outputs, own)
    twice = len(layout.state) == 1 or layout.single[1] or "state0" in variables(outputs)
    names = ["cell", *(f"carried{i}" for i in range(len(layout.state) - 1))]
    kept = [f"state{i}" for i in range(0 if twice else 1, len(layout.state))]
    renamed = {variable(old): variable(new) for old, new in zip(kept, names, strict=False)}
    hidden, *rest = substituted(outputs, renamed)
    after = hidden if twice else rest.pop(0)
    upstream = [(hidden, "d_hidden"), (after, "d_cell"), *((part, f"d_carried{i}") for i, part in enumerate(rest))]
    sources = [f"z{i}" for i in range(count)] + ["hn"] + names + [f"fixed{i}" for i in range(len(fixed))] + ["dt"]
    slopes, back = way_back([(part, variable(name)) for part, name in upstream], sources)
    single = layout.single[1:] if twice else layout.single[2:]
    found = DerivedCell(
        count,
        split,
        twice,
        single,
        layout.own,
        has_dt,
        hidden,
        after,
        tuple(rest),
        tuple(fixed),
        tuple(slopes),
        back,
        tuple(map(tuple, by_weights(fixed, own))),
    )
    _compare_derivatives(cell, layout, found)
    return found


def _with_sums(outputs: list[Expression], count: int) -> tuple[list[Expression], int]:
    """Formulas of `z0`, ... and `hn` instead of input and recurrent parts, and the block that needs both, or -1."""
    inputs, recurrent = ([variable(f"{name}{i}") for i in range(count)] for name in ("projected", "recurrent"))
    sums = [apply("add", x, r) for x, r in zip(inputs, recurrent, strict=True)]
    whole = substituted(outputs, {both: variable(f"z{i}") for i, both in enumerate(sums)})
    left = set(variables(whole))
    apart = [i for i in range(count) if f"projected{i}" in left or f"recurrent{i}" in left]
    if len(apart) > 1:
        raise NotDerivableError("it uses the input and recurrent part of more than one block separately")
    if not apart:
        return whole, -1
    (block,) = apart
    replaced = {both: variable(f"z{i}") for i, both in enumerate(sums) if i != block}
    replaced |= {inputs[block]: variable(f"z{block}"), recurrent[block]: variable("hn")}
    return substituted(outputs, replaced), block


def _called(cell: PointwiseCell, layout: CellLayout, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """The state after a step, from tensors by their names in formulas."""
    state = tuple(tensors[f"state{i}"] for i in range(len(layout.state)))
    weights = {name: tensors[f"own{i}"] for i, name in enumerate(layout.own)}
    after, _ = cell.pointwise(tensors["projected"], tensors["recurrent"], state, weights, tensors.get("dt"))
    if len(after) != len(layout.state):
        raise NotDerivableError(f"it returns a state of {len(after)} tensors instead of {len(layout.state)}")
    return list(after)


def _sample(
    cell: PointwiseCell,
    layout: CellLayout,
    has_dt: bool,
    dtype: torch.dtype,
    seed: int,
    rows: int = ROWS,
    units: int = UNITS,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Sample tensors to run a cell with, weights as initialised; the blocks are a separate mapping."""
    with ONE_AT_A_TIME, seeded(seed):  # a cell may initialise its weights from that generator

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, dtype=torch.float64, device="cpu").to(dtype)

        shapes = cell.shapes(INPUTS, units, units, True)
        weights = {name: torch.rand(shape, dtype=dtype, device="cpu") - 0.5 for name, shape in shapes.items()}
        with torch.no_grad():
            cell.initialise(weights)
        given = {
            f"state{i}": draw(rows, 1 if single else units).abs() if i > 1 else draw(rows, 1 if single else units)
            for i, single in enumerate(layout.single)
        }
        given |= {f"own{i}": weights[name] for i, name in enumerate(layout.own)}
        given |= {"dt": draw(rows, 1).abs()} if has_dt else {}
        blocks = len(cell.blocks) * units
        return given, {"projected": 2 * draw(rows, blocks), "recurrent": draw(rows, blocks)}


def _apart(wide: Mapping[str, Tensor], units: int) -> dict[str, Tensor]:
    return {f"{name}{i}": part for name, value in wide.items() for i, part in enumerate(torch.split(value, units, -1))}


def _compare(
    cell: PointwiseCell, layout: CellLayout, has_dt: bool, dtype: torch.dtype, outputs: Sequence[Expression]
) -> None:
    """Check the formula against the cell: it was traced on one sample and must hold for others."""
    given, wide = _sample(cell, layout, has_dt, dtype, seed=1, rows=OTHER_ROWS, units=OTHER_UNITS)
    with torch.no_grad():
        expected = _called(cell, layout, given | wide)
    tolerance = 64 * torch.finfo(dtype).eps
    values = evaluated(outputs, given | _apart(wide, OTHER_UNITS))
    for found, other, single in zip(values, expected, layout.single, strict=True):
        if tuple(other.shape) != (OTHER_ROWS, 1 if single else OTHER_UNITS):
            raise NotDerivableError(f"it returns a state of shape {tuple(other.shape)}")
        if not torch.allclose(found.expand_as(other), other, rtol=tolerance, atol=tolerance, equal_nan=True):
            raise NotDerivableError("its result depends on more than the operations that it calls")


def _compare_derivatives(cell: PointwiseCell, layout: CellLayout, derived: DerivedCell) -> None:
    """Check the gradients of the formula against autograd, in float64."""
    given, wide = _sample(cell, layout, derived.has_dt, torch.float64, seed=2)
    leaves = {name: value.requires_grad_() for name, value in (given | wide).items()}
    with torch.enable_grad():
        outputs = _called(cell, layout, leaves)
        upstream = [
            torch.linspace(-1, 1.5, part.numel(), dtype=torch.float64, device="cpu").view_as(part) for part in outputs
        ]
        none = torch.stack([value.sum() for value in leaves.values()]).sum() * 0.0  # an output may be a constant
        total = torch.stack([(part * up).sum() for part, up in zip(outputs, upstream, strict=True)]).sum() + none
        truth = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    with torch.no_grad():
        values = _values(layout, derived, given, wide, upstream)
        found = {
            name: slope.expand(ROWS, UNITS)
            for name, slope in zip(derived.back, evaluated(list(derived.back.values()), values), strict=True)
        }
        zero = torch.zeros(ROWS, UNITS, dtype=torch.float64, device="cpu")
        d_fixed = {f"d_fixed{i}": found.get(f"fixed{i}", zero).sum(0) for i in range(len(derived.fixed))}
        by_own = evaluated(derived.derivatives_by_own(), values | d_fixed)
        mine = {f"own{i}": part.expand(UNITS) for i, part in enumerate(by_own)} | {"dt": found.get("dt", zero)}
        names = ["cell", *(f"carried{i}" for i in range(derived.carries))]
        kept = [f"state{i}" for i in range(0 if derived.twice else 1, len(layout.state))]
        mine |= {old: found.get(new, zero) for old, new in zip(kept, names, strict=True)}
        z = [found.get(f"z{i}", zero) for i in range(derived.blocks)]
        hn = [found.get("hn", zero) if i == derived.split else part for i, part in enumerate(z)]
        mine |= {"projected": torch.cat(z, -1), "recurrent": torch.cat(hn, -1)}
        for name, true in truth.items():
            summed = mine.get(name, zero).sum_to_size(true.shape)
            if not torch.allclose(summed, true, rtol=1e-6, atol=1e-9, equal_nan=True):
                raise NotDerivableError(f"the gradient of its formula for {name} differs from autograd")


def _values(
    layout: CellLayout,
    derived: DerivedCell,
    given: Mapping[str, Tensor],
    wide: Mapping[str, Tensor],
    upstream: Sequence[Tensor],
) -> dict[str, Tensor]:
    """All values that the backward pass of a sample uses, by name."""
    projected, recurrent = (torch.split(wide[name].detach(), UNITS, -1) for name in ("projected", "recurrent"))
    values = {name: value.detach() for name, value in given.items() if not name.startswith("state")}
    values |= {f"z{i}": x + r for i, (x, r) in enumerate(zip(projected, recurrent, strict=True))}
    if derived.split >= 0:
        values |= {f"z{derived.split}": projected[derived.split], "hn": recurrent[derived.split]}
    names = ["cell", *(f"carried{i}" for i in range(derived.carries))]
    state = [given[f"state{i}"].detach() for i in range(len(layout.state))]
    hidden, *others = upstream
    arriving = [torch.zeros_like(hidden), *others] if derived.twice else others
    values |= dict(zip(names, state if derived.twice else state[1:], strict=True))
    # All units hold a copy of a scalar per sequence: its incoming gradient is given to one of them.
    first = torch.zeros(UNITS, dtype=torch.float64, device="cpu")
    first[0] = 1.0
    arriving = [part * first if part.shape[-1] == 1 else part for part in arriving]
    values |= {"d_hidden": hidden, **{f"d_{name}": part for name, part in zip(names, arriving, strict=True)}}
    values |= {f"fixed{i}": value for i, value in enumerate(evaluated(derived.fixed, values))}
    return values | {f"slope{i}": value for i, value in enumerate(evaluated(derived.slopes, values))}
