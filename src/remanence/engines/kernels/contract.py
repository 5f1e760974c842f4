"""The interface between engines and kernels: kernel variants, operands, saved tensors and gradients.

N replicas, T steps, B batch rows (sequences), I inputs, H units, G blocks of pre-activations, K values that a gate
carries, W per-unit weights of the gate. A single replica has no leading N; a single carried value or weight has no K
or W.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ...cells import GatedCell, GRUCell, PointwiseCell
from ...gates import Gate
from ..base import BY_HAND
from .derive import (
    DerivedCell,
    DerivedGate,
    derived,
    derived_cell,
    unpaddable,
    unpaddable_cell,
    why_no_cell,
    why_not,
)

ALIGNMENT = 16
"""Most kernels need H to be a multiple of this: aligned rows allow vectorised loads and stores, which are several
times as fast."""


@dataclass(frozen=True)
class Kind:
    """A kernel variant: everything but the sizes."""

    cell: str
    gate: str
    """Key of the gate, or of the whole cell if the cell is derived, see `Derivation`."""
    blocks: int
    split: int
    """Index of the block whose recurrent part is kept separate (the GRU's candidate), or -1."""
    coupled: bool
    beta: float
    carried: int
    own: int
    reverse: bool
    precision: str
    """Precision of float32 matmuls: "tf32", or "tf32x3" for full float32."""
    kernels: str
    """Name of the backend: "triton", "cuda" or "c++"."""

    def derived(self, has_dt: bool) -> DerivedGate | DerivedCell:
        """The formulas of the gate, or of the whole cell if that is derived."""
        known = _known[self.gate]
        return derived_cell(known, has_dt) if isinstance(known, PointwiseCell) else derived(known, has_dt)

    def constants(self) -> dict[str, int | str]:
        """Values of the macros that the C++ sources of cells leave undefined."""
        return {
            "BLOCKS": self.blocks,
            "SPLIT": self.split,
            "COUPLED": int(self.coupled),
            **{f"CELL_{name.upper()}": f"{self.cell}_{name}" for name in ("forward", "slopes", "backward")},
        }


DERIVED = "derived"
"""Value of `Kind.cell` for cells that are derived as a whole."""
_known: dict[str, Gate | PointwiseCell] = {}


class Derivation(NamedTuple):
    """Facts about a cell's formula, cached on the cell because `torch.compile` cannot trace the derivation."""

    subject: str
    """What is derived, with its name: the gate of a hand-written cell, or the whole cell."""
    kind: str
    """Name of the step: that of a hand-written cell, or `DERIVED`."""
    key: str | None
    """Key under which kernels look it up, the same in every process for the same formula; None without a formula."""
    float32: tuple[str | None, str | None]
    """Why there is no formula in float32, as the end of a sentence: without and with dt."""
    float64: tuple[str | None, str | None]
    padding: tuple[str | None, str | None]
    """Why the formula cannot be evaluated for padding units."""
    split: int = -1
    """See `Kind`."""
    twice: bool = False
    """Whether kernels also carry the hidden state in the place of the cell state."""
    single: tuple[bool, ...] = ()
    """For every other carried value, whether it is a scalar per sequence."""
    own: tuple[str, ...] = ()
    """Names of the per-unit weights of the gate or cell."""


def derivation(cell: PointwiseCell) -> Derivation:
    """The derivation of a cell, computed once per cell.

    Args:
        cell: The cell.
    """
    found: Derivation | None = getattr(cell, "_derivation", None)
    if found is None:
        found = _look_at_gate(cell) if isinstance(cell, GatedCell) and type(cell) in BY_HAND else _look_at_cell(cell)
        object.__setattr__(cell, "_derivation", found)  # not a dataclass field: cells are frozen
    return found


def for_every_unit(single: tuple[bool, ...], state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A state with the scalars per sequence broadcast to all units.

    Args:
        single: As in `Derivation`.
        state: The state.
    """
    own = len(state) - len(single)
    copies = (p.expand_as(state[0]) if one else p for p, one in zip(state[own:], single, strict=True))
    return (*state[:own], *copies)


def one_a_sequence(single: tuple[bool, ...], state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The inverse of `for_every_unit`."""
    own = len(state) - len(single)
    return (*state[:own], *(p[..., :1] if one else p for p, one in zip(state[own:], single, strict=True)))


def no_formula(cell: PointwiseCell, dtype: torch.dtype, has_dt: bool) -> str | None:
    """Why a cell has no formula in this dtype, as the end of a sentence; None if it has one."""
    known = derivation(cell)
    return (known.float64 if dtype == torch.float64 else known.float32)[int(has_dt)]


Reasons = tuple[str | None, str | None]


def _look_at_gate(cell: GatedCell) -> Derivation:
    gate, times = cell.gate, (False, cell.gate.takes_dt)
    narrow, broad, padding = _reasons(partial(why_not, gate), partial(unpaddable, gate), times)
    digests = [(dt, derived(gate, dt).digest) for dt, reason in zip(times, narrow, strict=True) if reason is None]
    key = _keep(gate.name, gate, digests)
    subject = f"gate {gate.name!r}"
    twice = isinstance(cell, GRUCell)
    split = cell.blocks.index("candidate") if twice else -1
    single = (False,) * len(gate.carries)
    return Derivation(subject, cell.name, key, narrow, broad, padding, split, twice, single, gate.per_unit)


def _look_at_cell(cell: PointwiseCell) -> Derivation:
    times = (False, cell.takes_dt)
    narrow, broad, padding = _reasons(partial(why_no_cell, cell), partial(unpaddable_cell, cell), times)
    forms = [(dt, derived_cell(cell, dt)) for dt, reason in zip(times, narrow, strict=True) if reason is None]
    if len({(form.split, form.twice) for _, form in forms}) > 1:  # one `Kind` covers both, with and without dt
        narrow = padding = (narrow[0], "its formula has a different structure with dt than without")
    key = _keep(cell.name, cell, [(dt, form.digest) for dt, form in forms])
    found = Derivation(f"cell {cell.name!r}", DERIVED, key, narrow, broad, padding)
    if not forms:  # there may still be one in float64, for the engine `cpu`
        wide = [(dt, reason) for dt, reason in zip(times, broad, strict=True) if reason is None]
        forms = [(dt, derived_cell(cell, dt, torch.float64)) for dt, _ in wide]
    if not forms:
        return found
    form = forms[0][1]
    return found._replace(split=form.split, twice=form.twice, single=form.single, own=form.own)


def _reasons(
    why: Callable[[bool, torch.dtype], str | None], unpadded: Callable[[bool], str | None], times: tuple[bool, bool]
) -> tuple[Reasons, Reasons, Reasons]:
    """Why there is no formula, without and with dt: in float32, in float64, and for padding units."""
    narrow, broad = ([why(dt, dtype) for dt in times] for dtype in (torch.float32, torch.float64))
    padding = [unpadded(dt) if reason is None else reason for dt, reason in zip(times, narrow, strict=True)]
    return (narrow[0], narrow[1]), (broad[0], broad[1]), (padding[0], padding[1])


def _keep(name: str, what: Gate | PointwiseCell, digests: list[tuple[bool, str]]) -> str | None:
    """Register a formula and return its key; None without a formula."""
    if not digests:
        return None
    key = "-".join([name, *(f"{dt:d}{digest}" for dt, digest in dict(digests).items())])
    _known[key] = what
    return key


class Operands(NamedTuple):
    """Operands of a forward or backward pass: contiguous, with H padded to `Terms.alignment`."""

    inputs: Tensor
    """`(N, T, B, I)`."""
    weight_ih: Tensor
    """`(N, G H, I)`; in the backward pass H may be unpadded, because a padded copy would be among the largest
    tensors."""
    weight_hh: Tensor
    """`(N, G H, H)`, in the form that `launch.prepared` returns."""
    bias_ih: Tensor | None
    """`(N, G H)`."""
    bias_hh: Tensor | None
    """`(N, G H)`."""
    own: Tensor | None
    """`(N, W, H)`: per-unit weights of the gate."""
    dt: Tensor | None
    """`(N, T, B)` float32."""
    lengths: Tensor | None
    """`(N, B)` int32."""
    hidden: Tensor | None
    """`(N, B, H)` in the dtype of the inputs; None for a zero state."""
    cell: Tensor | None
    """`(N, B, H)`; for the GRU, which has no cell state, the hidden state again."""
    carried: Tensor | None
    """`(N, K, B, H)`."""


class Kept(NamedTuple):
    """Tensors that the forward pass saves for backward, `(N, T, B, ...)`; cells and carried values are float32."""

    outputs: Tensor
    pre: Tensor | None
    """Pre-activations, or the values that these kernels use instead in the backward pass."""
    cells: Tensor | None
    carried: Tensor | None
    """`(N, T, K, B, H)`."""
    parts: Tensor | None
    """The recurrent part of the candidate, GRU only."""
    before: Tensor | None
    """All h_{t-1}, if that makes the matmuls over the steps of several replicas faster."""


class Final(NamedTuple):
    """Final state, float32, `(N, B, H)` each (carried: `(N, K, B, H)`), or its gradients."""

    hidden: Tensor | None
    cell: Tensor | None
    carried: Tensor | None


class Needs(NamedTuple):
    """Which gradients are requested. Those of the weights are always computed."""

    inputs: bool
    dt: bool
    state: bool


class OperandGradients(NamedTuple):
    """Gradients of the operands; None if not requested or if the operand is missing."""

    inputs: Tensor | None
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor
    own: Tensor | None
    dt: Tensor | None
    hidden: Tensor | None
    cell: Tensor | None
    carried: Tensor | None


class Upstream(NamedTuple):
    """Incoming gradients of the backward recurrence, and the buffers that it fills."""

    outputs: Tensor | None
    """Gradients of all h_t, `(N, T, B, H)`; None for zero."""
    final: Final
    """Gradients of the final state; None for zero."""
    pre: Tensor
    """Output: gradients of the pre-activations, in the same layout."""
    parts: Tensor | None
    """Output: gradients of the recurrent part of the candidate, GRU only."""
    state: Final
    """Output: gradients of the initial state, if requested."""
    wants_dt: bool
    wants_inputs: bool


class RecurrenceGradients(NamedTuple):
    """Gradients that the backward recurrence returns, besides the buffers that it fills."""

    own: Tensor | None
    dt: Tensor | None
    inputs: Tensor | None = None
    """`(N, T, B, I)`; None if it is not requested or still has to be computed from those of the pre-activations."""
    weight_ih: Tensor | None = None
    """`(N, G H, I)`; None if it still has to be computed from those of the pre-activations."""
    weight_hh: Tensor | None = None
    """`(N, G H, H)`, of a GRU's candidate not its own; None if it still has to be computed."""
    bias: Tensor | None = None
    """`(N, G H)`; None if it still has to be reduced from those of the pre-activations."""
    bias_hh: Tensor | None = None
    """A copy of `bias` in separate memory, if the kernel provides one."""
    bias_hn: Tensor | None = None
    """`(N, H)`, GRU only: gradient of the recurrent bias of the candidate."""


class Terms(NamedTuple):
    """Requirements and properties of a backend for tasks of one kind and size."""

    alignment: int
    """H must be a multiple of this: 1 or `ALIGNMENT`."""
    multiplies_inputs: bool
    """Whether the kernel multiplies inputs by weight_ih itself, instead of a matmul before the recurrence."""
    keeps_before: bool
    """Whether it also writes all h_{t-1}, besides all h_t."""


class Backend(Protocol):
    """The sequential part of the forward and backward pass, run by the kernels of one engine."""

    def terms(self, kind: Kind, operands: Operands) -> Terms:
        """Requirements for unpadded operands of these sizes."""

    def split(self, kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
        """The recurrent matrix `(N, G H, H)` in the form the kernels expect, and the scale of its products."""

    def forward(
        self, kind: Kind, operands: Operands, scale: Tensor | None, pre: Tensor | None, kept: Kept, final: Final
    ) -> None:
        """Run all steps: fills the outputs, the saved tensors and the final state.

        Args:
            kind: Kernel variant.
            operands: Operands of the pass.
            scale: The scale that `split` returned.
            pre: Contribution of the inputs to the pre-activations. If the kernel multiplies the inputs itself, a
                buffer for the pre-activations, or None.
            kept: Output: all h_t, and the tensors to save, except those that are None.
            final: Output: final state.
        """

    def backward(
        self, kind: Kind, operands: Operands, scale: Tensor | None, kept: Kept, by: Upstream
    ) -> RecurrenceGradients:
        """Run all steps backward, from the gradients of all h_t and the final state; fills the buffers in `by`."""


_backends: dict[str, Callable[[], Backend]] = {}


def register(name: str, load: Callable[[], Backend]) -> None:
    """Register the backend of that name; `load` is called on first use."""
    _backends[name] = load


@cache
def backend(name: str) -> Backend:
    """The backend of that name."""
    return _backends[name]()


def several(parts: tuple[Tensor, ...], dim: int) -> Tensor | None:
    """Stack tensors for the kernels: a single one is returned unchanged; None for an empty tuple."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else torch.stack(parts, dim)
