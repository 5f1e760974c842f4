"""Running the kernels: buffers, launches, and the matrix products before and after.

N replicas, T steps, B rows, I inputs, H units, G blocks. A single replica comes without the leading N.

Everything here runs on every call, and a short sequence takes hardly longer than the host needs to start it: no tensor
operation that can be left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..machine import lacking, matrix_products
from . import products
from .blocks import Blocks, padded


@dataclass(frozen=True)
class Kind:
    """Which kernel, apart from sizes."""

    cell: str
    gate: str
    blocks: int
    split: int
    """Index of the block whose recurrent part is kept apart (the GRU's candidate), or -1."""
    coupled: bool
    beta: float
    eps: float
    fixed_p: float
    """Exponent of all units, where it is not learned."""
    reverse: bool
    precision: str
    """Of float32 products: "tf32", or "tf32x3" for full float32."""
    kernels: str = "triton"
    """Whose: "triton", "cuda" or "c++"."""

    @property
    def has_age(self) -> bool:
        return self.gate == "power_law"

    def constants(self) -> dict[str, int | str]:
        """What cells and gates in C++ leave open."""
        names = ("forward", "slopes", "backward")
        return {
            "BLOCKS": self.blocks,
            "SPLIT": self.split,
            "COUPLED": int(self.coupled),
            "HAS_AGE": int(self.has_age),
            **{f"CELL_{name.upper()}": f"{self.cell}_{name}" for name in names},
            **{f"GATE_{name.upper()}": f"{self.gate}_{name}" for name in names},
        }


ALIGNMENT = 16
"""What H is a multiple of for most kernels: rows of whole vectors are read and written several times as fast."""


class Given(NamedTuple):
    """What a pass starts from, H as `Recurrence.alignment` says, all contiguous."""

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
    p_hat: Tensor | None
    """`(N, H)`."""
    dt: Tensor | None
    """`(N, T, B)` float32."""
    lengths: Tensor | None
    """`(N, B)` int32."""
    hidden: Tensor | None
    """`(N, B, H)` in the dtype of the inputs; None for a state of zeros."""
    cell: Tensor | None
    """`(N, B, H)`; of the GRU, which has no cell, the hidden state once more."""
    age: Tensor | None
    """`(N, B, H)`."""


class Kept(NamedTuple):
    """What the backward pass needs of the forward pass, `(N, T, B, ...)`; cells and ages are float32."""

    outputs: Tensor
    pre: Tensor | None
    """Pre-activations, or what these kernels take for them in the backward pass."""
    cells: Tensor | None
    ages: Tensor | None
    parts: Tensor | None
    before: Tensor | None
    """All h_{t-1}, where products over the steps of several replicas are faster with them."""


class Final(NamedTuple):
    """State after the last step, `(N, B, H)` float32 each, or derivatives by it."""

    hidden: Tensor | None
    cell: Tensor | None
    age: Tensor | None


class Wanted(NamedTuple):
    """Derivatives that somebody asked for. Those by weights are always computed."""

    inputs: bool
    dt: bool
    state: bool


class Slopes(NamedTuple):
    """Derivatives; None where they were not wanted or do not exist."""

    inputs: Tensor | None
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor
    p_hat: Tensor | None
    dt: Tensor | None
    hidden: Tensor | None
    cell: Tensor | None
    age: Tensor | None


class Derivatives(NamedTuple):
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


class Found(NamedTuple):
    """Derivatives that the recurrence returns, beside those it fills in."""

    p_hat: Tensor | None
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


class Recurrence(Protocol):
    """The part of both passes that goes from step to step, by kernels of one kind."""

    def alignment(self, kind: Kind, given: Given) -> int:
        """What H has to be a multiple of, from what is given before it is: 1 or `ALIGNMENT`."""

    def narrow(self, kind: Kind, given: Given) -> int:
        """How many of the inputs are multiplied by their matrix on the way, and not before: all or none."""

    def keeps_before(self, kind: Kind, given: Given) -> bool:
        """Whether it leaves all h_{t-1} beside all h_t."""

    def split(self, kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
        """The recurrent matrix `(N, G H, H)` as the kernels take it, and what products are multiplied by."""

    def forward(
        self, kind: Kind, given: Given, scale: Tensor | None, pre: Tensor | None, kept: Kept, final: Final
    ) -> None:
        """To all h_t, what is kept, and the last state: fills them.

        Args:
            kind: which kernel.
            given: what it starts from.
            scale: what `split` returned.
            pre: what the inputs contribute; for narrow ones, room for the pre-activations or None.
            kept: what is filled, and saved where it is there.
            final: what is filled.
        """

    def backward(self, kind: Kind, given: Given, scale: Tensor | None, kept: Kept, by: Derivatives) -> Found:
        """From the derivatives by all h_t and the last state back to those by the first: fills them."""


def recurrence(kind: Kind) -> Recurrence:
    """Whose kernels run it."""
    return _recurrence(kind.kernels)


@cache
def _recurrence(kernels: str) -> Recurrence:
    if kernels == "cuda":
        from .clusters import passes

        return passes
    if kernels == "c++":
        from .host import passes as steps

        return steps
    from . import programs

    return programs


def prepared(kind: Kind, given: Given) -> tuple[Given, Tensor | None]:
    """With the recurrent matrix as the kernels take it, and what its products are then multiplied with."""
    matrix, scale = recurrence(kind).split(kind, given.weight_hh)
    return given._replace(weight_hh=matrix), scale


def forward(kind: Kind, given: Given, scale: Tensor | None, save: bool) -> tuple[Kept, Final]:
    """All h_t, and, if `save`, what the backward pass needs; the state after the last step.

    Args:
        kind: which kernel.
        given: what it starts from.
        scale: of the recurrent matrix, see `prepared`.
        save: whether there will be a backward pass.
    """
    inputs = given.inputs
    *lead, steps, rows, _ = inputs.shape
    units = given.weight_hh.shape[-1]
    new = partial(torch.empty, dtype=torch.float32, device=inputs.device)
    pre = _projected(kind, given, save)
    shape, state = (*lead, steps, rows, units), (*lead, rows, units)
    outputs = torch.empty(shape, dtype=inputs.dtype, device=inputs.device)
    kept = Kept(
        outputs,
        pre if save else None,
        new(shape) if save else None,
        new(shape) if save and kind.has_age else None,
        torch.empty_like(outputs) if save and kind.split >= 0 else None,
        torch.empty_like(outputs) if save and rows and recurrence(kind).keeps_before(kind, given) else None,
    )
    final = Final(new(state), new(state), new(state) if kind.has_age else None)
    if not rows:
        return kept, final
    recurrence(kind).forward(kind, given, scale, pre, kept, final)
    return kept, final


def _projected(kind: Kind, given: Given, save: bool) -> Tensor | None:
    """What the inputs contribute to the pre-activations, `(N, T B, G H)`; room for these if the recurrence does it.

    Rows are whole vectors: where G H numbers are none, more follow.
    """
    inputs, weight = given.inputs.flatten(-3, -2), given.weight_ih
    if not recurrence(kind).narrow(kind, given):
        with matrix_products(kind.precision == "tf32"):
            return products.by_weight(inputs, weight)
    return inputs.new_empty(*inputs.shape[:-1], weight.shape[-2]) if save else None


def backward(
    kind: Kind,
    given: Given,
    scale: Tensor | None,
    kept: Kept,
    d_outputs: Tensor | None,
    d_final: Final,
    wanted: Wanted,
    overwrite: bool,
    real: int | None = None,
) -> Slopes:
    """Derivatives by everything that was given.

    Args:
        kind: which kernel.
        given: what the forward pass started from.
        scale: of the recurrent matrix, see `prepared`.
        kept: what it kept.
        d_outputs: derivative by all h_t, `(N, T, B, H)`; None for zero.
        d_final: derivatives by the last state, None for zero.
        wanted: which derivatives to compute.
        overwrite: whether what was kept may be overwritten, which saves most of the memory of this pass.
        real: how many units are no padding: derivatives by the matrices come without it.
    """
    inputs = given.inputs
    units = given.weight_hh.shape[-1]
    d_pre, d_parts, found, d_state = _through_time(kind, given, scale, kept, d_outputs, d_final, wanted, overwrite)
    with matrix_products(kind.precision == "tf32"):
        d_inputs = found.inputs
        real = units if real is None else real
        blocks = Blocks(kind.blocks, units, real)
        if wanted.inputs and d_inputs is None:
            d_inputs = products.derivatives_by_inputs(d_pre, given.weight_ih, blocks).view(inputs.shape)
        if found.weight_ih is None:
            d_weight_ih = products.derivatives_by_weight(d_pre, inputs.flatten(-3, -2), blocks)
        else:
            d_weight_ih = blocks.cut(found.weight_ih, inputs.shape[-1])
        d_weight_hh = _by_recurrent_weight(kind, given, kept, d_pre, blocks)
        d_bias_ih = products.sum_over_rows(d_pre) if found.bias is None else found.bias
        d_bias_hh = d_bias_ih if found.bias_hh is None else found.bias_hh
        if d_parts is not None:
            flat = d_parts.flatten(-3, -2)
            own = slice(kind.split * real, (kind.split + 1) * real)
            whole = padded(flat, (0, lacking(units, flat.itemsize)))
            d_weight_hh[..., own, :] = _by_recurrent_weight(kind, given, kept, whole, Blocks(1, units, real))
            block = slice(kind.split * units, (kind.split + 1) * units)
            if d_bias_hh is d_bias_ih:
                d_bias_hh = d_bias_ih.clone()
            d_bias_hh[..., block] = products.sum_over_rows(flat) if found.bias_hn is None else found.bias_hn
    return Slopes(d_inputs, d_weight_ih, d_weight_hh, d_bias_ih, d_bias_hh, found.p_hat, found.dt, *d_state)


def _by_recurrent_weight(kind: Kind, given: Given, kept: Kept, d_pre: Tensor, blocks: Blocks) -> Tensor:
    if kept.before is not None:
        return products.derivatives_of_replicas(d_pre, kept.before.flatten(-3, -2), blocks)
    return products.derivatives_by_recurrent_weight(d_pre, kept.outputs, given.hidden, blocks, kind.reverse)


def _through_time(
    kind: Kind,
    given: Given,
    scale: Tensor | None,
    kept: Kept,
    d_outputs: Tensor | None,
    d_final: Final,
    wanted: Wanted,
    overwrite: bool,
) -> tuple[Tensor, Tensor | None, Found, Final]:
    """The part of the backward pass that goes from step to step; arguments as there.

    What only this part needs is gone when it returns: the products after it need as much memory again.

    Returns:
        Derivatives by the pre-activations, by the GRU's recurrent part of the candidate, what the recurrence found, and
        derivatives by the first state.
    """
    inputs, dt = given.inputs, given.dt
    *lead, _, rows, _ = inputs.shape
    units = given.weight_hh.shape[-1]
    pre, parts = kept.pre, kept.parts
    assert pre is not None
    new = partial(torch.empty, dtype=torch.float32, device=inputs.device)
    d_pre = pre if overwrite else torch.empty_like(pre)
    d_parts = parts if overwrite or parts is None else torch.empty_like(parts)
    state = (*lead, rows, units)
    d_hidden, d_cell = (new(state) if wanted.state else None for _ in range(2))
    d_age = new(state) if wanted.state and kind.has_age else None
    d_state = Final(d_hidden, d_cell, d_age)
    if not rows:
        d_p_hat = None if given.p_hat is None else torch.zeros_like(given.p_hat)
        d_dt = torch.zeros_like(dt) if wanted.dt and dt is not None else None
        d_bias = new(*lead, kind.blocks * units).zero_()
        return d_pre, d_parts, Found(d_p_hat, d_dt, bias=d_bias), d_state
    by = Derivatives(d_outputs, d_final, d_pre, d_parts, d_state, wanted.dt, wanted.inputs)
    found = recurrence(kind).backward(kind, given, scale, kept, by)
    return d_pre, d_parts, found, d_state
