"""What engines and kernels agree on: which kernel, what it is given, what it keeps, and what it gives back.

N replicas, T steps, B rows (sequences), I inputs, H units, G blocks of pre-activations, K values that a gate carries,
W weights of its own. A single replica comes without the leading N; a single carried value or weight without K or W.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ...cells import GatedCell, GRUCell, JANETCell, LSTMCell, PointwiseCell
from ...gates import Gate
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
"""What H is a multiple of for most kernels: rows of whole vectors are read and written several times as fast."""


@dataclass(frozen=True)
class Kind:
    """Which kernel, apart from sizes."""

    cell: str
    gate: str
    """The key of the gate, or of the whole cell where that is derived, see `Derivation`."""
    blocks: int
    split: int
    """Index of the block whose recurrent part is kept apart (the GRU's candidate), or -1."""
    coupled: bool
    beta: float
    carried: int
    own: int
    reverse: bool
    precision: str
    """Of float32 products: "tf32", or "tf32x3" for full float32."""
    kernels: str
    """Whose: "triton", "cuda" or "c++"."""

    def derived(self, has_dt: bool) -> DerivedGate | DerivedCell:
        """The gate as formulas, or the whole cell where that is derived."""
        known = _known[self.gate]
        return derived_cell(known, has_dt) if isinstance(known, PointwiseCell) else derived(known, has_dt)

    def constants(self) -> dict[str, int | str]:
        """What cells in C++ leave open."""
        return {
            "BLOCKS": self.blocks,
            "SPLIT": self.split,
            "COUPLED": int(self.coupled),
            **{f"CELL_{name.upper()}": f"{self.cell}_{name}" for name in ("forward", "slopes", "backward")},
        }


BY_HAND = (LSTMCell, GRUCell, JANETCell)
"""Cells with a step by hand around a derived gate. All others are derived as a whole."""
DERIVED = "derived"
"""What these are called as a kind."""
_known: dict[str, Gate | PointwiseCell] = {}


class Derivation(NamedTuple):
    """What is known of a cell. `torch.compile` reads it off the cell: it cannot trace how it came about."""

    subject: str
    """What is derived: the gate of a cell by hand, or else the cell, with its name."""
    kind: str
    """Name of the step: that of a cell by hand, or `DERIVED`."""
    key: str | None
    """A word by which kernels find it again: the same in every process for the same formula; None without one."""
    float32: tuple[str | None, str | None]
    """Why there is no formula in float32, as the end of a sentence: without and with dt."""
    float64: tuple[str | None, str | None]
    padding: tuple[str | None, str | None]
    """Why units that are padding cannot have it."""
    split: int = -1
    """See `Kind`."""
    twice: bool = False
    """Whether kernels carry the hidden state once more, as they do a cell."""
    single: tuple[bool, ...] = ()
    """For everything else that is carried, whether it is one number a sequence."""
    own: tuple[str, ...] = ()
    """Names of weights of its own, one number a unit each."""


def derivation(cell: PointwiseCell) -> Derivation:
    """What is known of a cell; asked once per cell."""
    found: Derivation | None = getattr(cell, "_derivation", None)
    if found is None:
        found = _look_at_gate(cell) if isinstance(cell, GatedCell) and type(cell) in BY_HAND else _look_at_cell(cell)
        object.__setattr__(cell, "_derivation", found)  # beside the fields: cells do not change
    return found


def for_every_unit(known: Derivation, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A state with a copy for every unit of what is one number a sequence."""
    own = len(state) - len(known.single)
    copies = (p.expand_as(state[0]) if one else p for p, one in zip(state[own:], known.single, strict=True))
    return (*state[:own], *copies)


def one_a_sequence(known: Derivation, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The other way round."""
    own = len(state) - len(known.single)
    return (*state[:own], *(p[..., :1] if one else p for p, one in zip(state[own:], known.single, strict=True)))


def no_formula(cell: PointwiseCell, dtype: torch.dtype, has_dt: bool) -> str | None:
    """Why a cell has no formula for numbers of this dtype, as the end of a sentence; None if it has."""
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
    if len({(form.split, form.twice) for _, form in forms}) > 1:  # they are one kind, with and without dt
        narrow = padding = (narrow[0], "with dt it has another shape than without")
    key = _keep(cell.name, cell, [(dt, form.digest) for dt, form in forms])
    found = Derivation(f"cell {cell.name!r}", DERIVED, key, narrow, broad, padding)
    if not forms:  # then there may be one in float64, for the engine `cpu`
        wide = [(dt, reason) for dt, reason in zip(times, broad, strict=True) if reason is None]
        forms = [(dt, derived_cell(cell, dt, torch.float64)) for dt, _ in wide]
    if not forms:
        return found
    form = forms[0][1]
    return found._replace(split=form.split, twice=form.twice, single=form.single, own=form.own)


def _reasons(
    why: Callable[[bool, torch.dtype], str | None], unpadded: Callable[[bool], str | None], times: tuple[bool, bool]
) -> tuple[Reasons, Reasons, Reasons]:
    """Why there is no formula, without and with dt: in float32, in float64, and for units that are padding."""
    narrow, broad = ([why(dt, dtype) for dt in times] for dtype in (torch.float32, torch.float64))
    padding = [unpadded(dt) if reason is None else reason for dt, reason in zip(times, narrow, strict=True)]
    return (narrow[0], narrow[1]), (broad[0], broad[1]), (padding[0], padding[1])


def _keep(name: str, what: Gate | PointwiseCell, digests: list[tuple[bool, str]]) -> str | None:
    """The key by which kernels find it, if there is a formula."""
    if not digests:
        return None
    key = "-".join([name, *(f"{dt:d}{digest}" for dt, digest in dict(digests).items())])
    _known[key] = what
    return key


class Operands(NamedTuple):
    """What a pass starts from, H as `Terms.alignment` says, all contiguous."""

    inputs: Tensor
    """`(N, T, B, I)`."""
    weight_ih: Tensor
    """`(N, G H, I)`; for the backward pass, where it is as large as anything, H may be without padding."""
    weight_hh: Tensor
    """`(N, G H, H)`, as `prepared`."""
    bias_ih: Tensor | None
    """`(N, G H)`."""
    bias_hh: Tensor | None
    """`(N, G H)`."""
    own: Tensor | None
    """`(N, W, H)`: the gate's own weights."""
    dt: Tensor | None
    """`(N, T, B)` float32."""
    lengths: Tensor | None
    """`(N, B)` int32."""
    hidden: Tensor | None
    """`(N, B, H)` in the dtype of the inputs; None for a state of zeros."""
    cell: Tensor | None
    """`(N, B, H)`; of the GRU, which has no cell, the hidden state once more."""
    carried: Tensor | None
    """`(N, K, B, H)`."""


class Kept(NamedTuple):
    """What the backward pass needs of the forward pass, `(N, T, B, ...)`; cells and carried values are float32."""

    outputs: Tensor
    pre: Tensor | None
    """Pre-activations, or what these kernels take for them in the backward pass."""
    cells: Tensor | None
    carried: Tensor | None
    """`(N, T, K, B, H)`."""
    parts: Tensor | None
    """The recurrent part of the candidate, GRU only."""
    before: Tensor | None
    """All h_{t-1}, where products over the steps of several replicas are faster with them."""


class Final(NamedTuple):
    """State after the last step, `(N, B, H)` float32 each (`(N, K, B, H)`), or derivatives by it."""

    hidden: Tensor | None
    cell: Tensor | None
    carried: Tensor | None


class Needs(NamedTuple):
    """Gradients that somebody asked for. Those by weights are always computed."""

    inputs: bool
    dt: bool
    state: bool


class OperandGradients(NamedTuple):
    """Gradients by the operands; None where they were not asked for or do not exist."""

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
    """What the recurrence goes back from, and what it fills on the way."""

    outputs: Tensor | None
    """By all h_t, `(N, T, B, H)`; None for zero."""
    final: Final
    """By the last state, None for zero."""
    pre: Tensor
    """By the pre-activations, laid out as they are: to fill."""
    parts: Tensor | None
    """By the recurrent part of the candidate, GRU only: to fill."""
    state: Final
    """By the first state: to fill, where it is wanted."""
    wants_dt: bool
    wants_inputs: bool


class RecurrenceGradients(NamedTuple):
    """Gradients that the recurrence returns, beside those it fills in."""

    own: Tensor | None
    dt: Tensor | None
    inputs: Tensor | None = None
    """`(N, T, B, I)`; None where it is still to be computed from those by the pre-activations, if it is wanted."""
    weight_ih: Tensor | None = None
    """`(N, G H, I)`; None where it is still to be computed from those by the pre-activations."""
    bias: Tensor | None = None
    """`(N, G H)`; None where it is still to be summed from those by the pre-activations."""
    bias_hh: Tensor | None = None
    """The same in memory of its own, where that is at hand."""
    bias_hn: Tensor | None = None
    """`(N, H)`, GRU only: by the recurrent bias of the candidate."""


class Terms(NamedTuple):
    """What a backend asks for and promises, for tasks of one kind and size."""

    alignment: int
    """What H has to be a multiple of: 1 or `ALIGNMENT`."""
    multiplies_inputs: bool
    """Whether inputs are multiplied by their matrix on the way, and not before."""
    keeps_before: bool
    """Whether it leaves all h_{t-1} beside all h_t."""


class Backend(Protocol):
    """The part of both passes that goes from step to step, by kernels of one kind."""

    def terms(self, kind: Kind, operands: Operands) -> Terms:
        """What holds for operands of these sizes, without padding."""

    def split(self, kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
        """The recurrent matrix `(N, G H, H)` as the kernels take it, and what products are multiplied by."""

    def forward(
        self, kind: Kind, operands: Operands, scale: Tensor | None, pre: Tensor | None, kept: Kept, final: Final
    ) -> None:
        """To all h_t, what is kept, and the last state: fills them.

        Args:
            kind: which kernel.
            operands: what it starts from.
            scale: what `split` returned.
            pre: what the inputs contribute; where it multiplies these, room for the pre-activations or None.
            kept: what is filled, and saved where it is there.
            final: what is filled.
        """

    def backward(
        self, kind: Kind, operands: Operands, scale: Tensor | None, kept: Kept, by: Upstream
    ) -> RecurrenceGradients:
        """From the gradients by all h_t and the last state back to those by the first: fills them."""


_backends: dict[str, Callable[[], Backend]] = {}


def register(name: str, load: Callable[[], Backend]) -> None:
    """Let kernels of that name run; they are loaded when they are first needed."""
    _backends[name] = load


@cache
def backend(name: str) -> Backend:
    """The kernels of that name."""
    return _backends[name]()


def several(parts: tuple[Tensor, ...], dim: int) -> Tensor | None:
    """Some tensors in one, as kernels take them: a single one as it is, None for none."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else torch.stack(parts, dim)
