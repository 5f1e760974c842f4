"""The outputs of the kernels recomputed by the loop engine, for double backward."""

from __future__ import annotations

from torch import Tensor

from ...cells import PointwiseCell
from ..again import Fields, by_the_loop
from ..base import EngineTask, Zeros
from .contract import Kind, Operands, derivation, for_every_unit, one_a_sequence, several


def outputs_of_loop(kind: Kind, cell: PointwiseCell, given: Fields) -> tuple[Tensor | None, ...]:
    """Outputs and final state of the kernels (hidden, cell, carried values), from unpadded operands."""
    of, known = Operands(*given), derivation(cell)  # type: ignore[arg-type]
    units = of.weight_hh.shape[-1]
    weights = {"weight_ih": of.weight_ih, "weight_hh": of.weight_hh}
    weights |= {name: bias for name, bias in (("bias_ih", of.bias_ih), ("bias_hh", of.bias_hh)) if bias is not None}
    if of.own is not None:
        weights |= dict(zip(known.own, _apart(of.own, len(known.own), -2), strict=True))
    state: tuple[Tensor, ...] | Zeros = Zeros(tuple(cell.widths(units, units).values()))
    if of.hidden is not None:
        parts = (of.hidden, None if known.twice else of.cell, *_apart(of.carried, len(known.single), -3))
        state = one_a_sequence(known, tuple(part for part in parts if part is not None))
    result = by_the_loop(EngineTask(cell, weights, of.inputs, state, of.dt, of.lengths, kind.reverse))
    hidden, *others = for_every_unit(known, result.state)
    last = None if known.twice else others.pop(0)
    return result.output, hidden, last, several(tuple(others), -3)


def _apart(values: Tensor | None, count: int, dim: int) -> tuple[Tensor, ...]:
    """The inverse of `several`."""
    if values is None:
        return ()
    return values.unbind(dim) if count > 1 else (values,)
