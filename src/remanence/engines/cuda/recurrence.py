"""Runs the recurrence on clusters of thread blocks: prepares the kernel arguments and launches the kernels."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..kernels.compiling import begin
from ..kernels.contract import ALIGNMENT, Final, Kept, Kind, Operands, RecurrenceGradients, Terms, Upstream
from ..kernels.machine_code import cell_sources
from ..machine import lacking, processors
from . import plan
from .compiler import machine_code
from .device import largest_cluster
from .driver import Kernel, architecture
from .memos import BySizes, ByVariant

NARROW = plan.MOST_INPUTS
NUMBERS = {torch.float32: "float", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def parts_of(kind: Kind, dtype: torch.dtype) -> int:
    """Number of float16 values that represent one operand of a matmul."""
    return plan.parts(dtype, kind.precision == "tf32")


@BySizes
def terms(kind: Kind, operands: Operands) -> Terms:
    """See `contract.Terms`. Kernels for wide layers take any number of units."""
    units = operands.weight_hh.shape[-1]
    sizes = _sizes(kind, operands, units, backward=False)
    alignment = 1 if units % ALIGNMENT == 0 or sizes.wide else ALIGNMENT
    if units % alignment:
        sizes = _sizes(kind, operands, units + -units % alignment, backward=False)
    several = operands.inputs.dim() == 4  # their weight gradients read all h_{t-1}, which kernels for whole layers save
    return Terms(alignment, _narrow(operands, sizes) > 0, several and sizes.whole)


def _narrow(operands: Operands, sizes: plan.LaunchShape) -> int:
    """Number of inputs that the kernels multiply by the input matrix: all or 0."""
    width = operands.inputs.shape[-1]
    return 0 if sizes.wide or width > NARROW else width


def split(kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """The recurrent matrix, unchanged."""
    return matrix, None


def forward(kind: Kind, operands: Operands, scale: Tensor | None, pre: Tensor | None, kept: Kept, final: Final) -> None:
    """Run the forward pass; fills the given tensors, see `contract.Backend`."""
    bias, *biases = _biases(operands)
    launch = _forward_launch(kind, operands, bias, kept.pre is not None)
    sizes = launch.sizes
    tensors = [
        *(pre, _wide(operands.inputs) if launch.inputs else None, operands.weight_ih, _aligned(operands.weight_hh)),
        *(*biases, operands.dt, operands.lengths, *map(_wide, operands[8:])),
        *(kept.outputs, kept.cells, kept.carried, kept.parts, *final),
    ]
    if sizes.whole:
        tensors.append(kept.before)
    elif sizes.wide:
        tensors.append(_overflow(sizes, launch.replicas, operands.inputs.device))
    launch.kernel.start(launch.groups, *_addresses(tensors), launch.steps, launch.rows, kind.beta)


def backward(kind: Kind, operands: Operands, scale: Tensor | None, kept: Kept, by: Upstream) -> RecurrenceGradients:
    """Run the backward pass; fills the given tensors, see `contract.Backend`."""
    *lead, steps, rows, width = operands.inputs.shape
    units = operands.weight_hh.shape[-1]
    dtype, device = operands.inputs.dtype, operands.inputs.device
    bias, *_, own = _biases(operands)
    launch = _backward_launch(kind, operands, bias, by.wants_inputs)
    sizes, groups, replicas, inputs = launch.sizes, launch.groups, launch.replicas, launch.inputs
    d_inputs = torch.empty_like(operands.inputs) if launch.d_inputs else None
    new = partial(torch.empty, dtype=torch.float32, device=device)
    kinds = kind.blocks + (kind.split >= 0)
    totals = kinds + kind.own
    shares = new(*lead, groups // replicas, (totals + kind.blocks * inputs) * units)
    d_dt = new(sizes.warps * sizes.cluster, *lead, steps, rows) if by.wants_dt else None
    tensors = [
        *(kept.pre, _wide(operands.inputs) if inputs else None, _aligned(operands.weight_hh)),
        *(own, operands.dt, operands.lengths, _wide(operands.cell), _wide(operands.carried)),
        *(kept.cells, kept.carried, kept.parts),
        *(_aligned(by.outputs), *map(_wide, by.final)),
        *(by.pre, by.parts, *by.state, shares, d_dt),
    ]
    if sizes.whole:
        tensors += (None if d_inputs is None else _aligned(operands.weight_ih.contiguous()), d_inputs)
    elif sizes.wide:
        tensors.append(_overflow(sizes, replicas, device))
    launch.kernel.start(groups, *_addresses(tensors), replicas, steps, rows, kind.beta)
    # Once per bias, because autograd copies a gradient that it gets twice; cast together rather than one by one.
    total, again = _cast(shares.expand(2, *shares.shape).sum(-2), bias).unbind()
    blocks = kind.blocks * units
    d_own = None
    if own is not None:
        d_own = total[..., kinds * units : totals * units]
        d_own = d_own if kind.own == 1 else d_own.reshape(*d_own.shape[:-1], kind.own, units)
    return RecurrenceGradients(
        own=d_own,
        dt=None if d_dt is None else d_dt.sum(0),
        inputs=d_inputs,
        weight_ih=_cast(total[..., totals * units :].view(*lead, blocks, width), dtype) if inputs else None,
        bias=total[..., :blocks],
        bias_hh=again[..., :blocks],
        bias_hn=total[..., blocks : blocks + units] if kind.split >= 0 else None,
    )


def _overflow(sizes: plan.LaunchShape, replicas: int, device: torch.device) -> Tensor | None:
    """Global memory for the part of the matrix that does not fit on chip."""
    if not sizes.streamed:
        return None
    return torch.empty(
        replicas * sizes.cluster * sizes.streamed * 32 * sizes.warps, 4, dtype=torch.int32, device=device
    )


def _does_inputs(kind: Kind, operands: Operands, sizes: plan.LaunchShape) -> bool:
    """Whether the backward kernel also computes gradients of the inputs: narrow ones, without padding of units.

    They must also fit into shared memory.
    """
    units, narrow = operands.weight_hh.shape[-1], _narrow(operands, sizes)
    unpadded = operands.weight_ih.shape[-2] == kind.blocks * units
    if not sizes.whole or kind.split >= 0 or not unpadded or not narrow:
        return False
    size, back = operands.inputs.dtype.itemsize, plan.aside(sizes, 1, kind.blocks, True)
    return plan.whole_backward_shared(units, size, kind.blocks, 1 + kind.carried, 1, narrow, True, back) <= plan.SHARED


def _biases(operands: Operands) -> tuple[torch.dtype, Tensor | None, Tensor | None, Tensor | None]:
    """A common dtype of both biases and the gate's own weights (that of the inputs, or float32), and the three."""
    dtype, bias_ih, bias_hh, own = operands.inputs.dtype, operands.bias_ih, operands.bias_hh, operands.own
    if all(value is None or value.dtype == dtype for value in (bias_ih, bias_hh, own)):
        return dtype, bias_ih, bias_hh, own
    return torch.float32, _wide(bias_ih), _wide(bias_hh), _wide(own)


def _wide(value: Tensor | None) -> Tensor | None:
    """The tensor in float32, aligned."""
    return None if value is None else _aligned(_cast(value, torch.float32))


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in this dtype; `Tensor.to` takes as long as a view even if there is nothing to do."""
    return value if value.dtype == dtype else value.to(dtype)


def _aligned(value: Tensor | None) -> Tensor | None:
    """The tensor, or a copy that is aligned to 16 bytes for vector loads."""
    return value if value is None or value.data_ptr() % 16 == 0 else value.clone()


def _addresses(values: list[Tensor | None]) -> list[int]:
    return [0 if value is None else value.data_ptr() for value in values]


def _plan(kind: Kind, operands: Operands, backward: bool) -> plan.LaunchShape:
    return _sizes(kind, operands, operands.weight_hh.shape[-1], backward)


def _sizes(kind: Kind, operands: Operands, units: int, backward: bool) -> plan.LaunchShape:
    *lead, steps, rows, _ = operands.inputs.shape
    parts, device = parts_of(kind, operands.inputs.dtype), operands.inputs.device
    replicas = lead[0] if lead else 1
    countable = replicas * steps * rows * max(kind.blocks, kind.carried) * units < 4 * 2**32
    chip = processors(device), largest_cluster(device)
    return plan.make(
        units, rows, replicas, parts, backward, *chip, countable, kind.blocks, 2 + kind.carried + (kind.split >= 0)
    )


class Variant(NamedTuple):
    """Everything that the code of a kernel depends on, except what only one pass has."""

    kind: Kind
    units: int
    inputs: int
    """Inputs that the kernel multiplies."""
    sizes: plan.LaunchShape
    dtype: torch.dtype
    bias: torch.dtype
    has_dt: bool
    has_lengths: bool
    device: torch.device

    @classmethod
    def of(cls, kind: Kind, operands: Operands, sizes: plan.LaunchShape, bias: torch.dtype) -> Variant:
        """The variant for these operands."""
        units, inputs = operands.weight_hh.shape[-1], operands.inputs
        there = operands.dt is not None, operands.lengths is not None
        return cls(kind, units, _narrow(operands, sizes), sizes, inputs.dtype, bias, *there, inputs.device)

    def kernel(self, name: str, signature: str, shared: int, **more: int) -> Kernel:
        """Load the kernel, with this many bytes of shared memory and the constants that only one pass has."""
        code = self.code(name, **more)
        return Kernel(code, name, signature, 32 * self.sizes.warps, self.sizes.cluster, shared, self.device)

    def code(self, name: str, **more: int) -> bytes:
        """Machine code of the kernel."""
        cell = cell_sources(self.kind.derived(self.has_dt))
        return machine_code(name, self.constants("backward" in name) | more, architecture(self.device), cell)

    def constants(self, backward: bool) -> dict[str, Any]:
        """Preprocessor constants for the source of a pass."""
        kind, sizes = self.kind, self.sizes
        return {
            **kind.constants(),
            "H": self.units,
            "INPUTS": self.inputs,
            "NUMBER": NUMBERS[self.dtype],
            "BIAS": NUMBERS[self.bias],
            "WARPS": sizes.warps,
            "CLUSTER": sizes.cluster,
            "TILES": sizes.tiles,
            "TOGETHER": sizes.together,
            **(self._wide_constants() if sizes.wide else {}),
            "PARTS": parts_of(kind, self.dtype),
            "SHELVE_FINER": int(sizes.shelved),
            "ASIDE": int(plan.aside(sizes, parts_of(kind, self.dtype), kind.blocks, backward)),
            "BOUNDED": int(kind.cell == "lstm"),
            "ACTIVATED": int(sizes.whole and kind.cell == "lstm" and self.dtype == torch.float32),
            "HAS_DT": int(self.has_dt),
            "HAS_LENGTHS": int(self.has_lengths),
            "REVERSE": int(kind.reverse),
        }

    def _wide_constants(self) -> dict[str, int]:
        columns = self.kind.blocks * self.units
        return {
            "PRE_ROW": columns + lacking(columns, self.dtype.itemsize),
            "HELD": self.sizes.held,
            "READ_AHEAD": self.sizes.ahead,
            "STREAMED": self.sizes.streamed,
        }


class Launch(NamedTuple):
    """A loaded kernel, and how to launch it for operands of one size."""

    kernel: Kernel
    sizes: plan.LaunchShape
    inputs: int
    """Inputs that the kernel multiplies."""
    groups: int
    """Clusters."""
    replicas: int
    steps: int
    rows: int
    d_inputs: bool = False
    """Whether it computes gradients of the inputs."""

    @classmethod
    def of(cls, kernel: Kernel, variant: Variant, operands: Operands, d_inputs: bool = False) -> Launch:
        """The launch for these operands."""
        *lead, steps, rows, _ = operands.inputs.shape
        replicas, sizes = lead[0] if lead else 1, variant.sizes
        return cls(kernel, sizes, variant.inputs, sizes.groups(rows, replicas), replicas, steps, rows, d_inputs)


@BySizes
def _forward_launch(kind: Kind, operands: Operands, bias: torch.dtype, save: bool) -> Launch:
    variant = Variant.of(kind, operands, _plan(kind, operands, backward=False), bias)
    kernel = _forward(variant, save, partial(_begin_backward, kind, operands, bias) if save else None)
    return Launch.of(kernel, variant, operands)


@BySizes
def _backward_launch(kind: Kind, operands: Operands, bias: torch.dtype, wants_inputs: bool) -> Launch:
    sizes = _plan(kind, operands, backward=True)
    d_inputs = wants_inputs and _does_inputs(kind, operands, sizes)
    variant = Variant.of(kind, operands, sizes, bias)
    return Launch.of(_backward(variant, d_inputs), variant, operands, d_inputs)


def _begin_backward(kind: Kind, operands: Operands, bias: torch.dtype) -> None:
    """Start compiling the backward kernel in parallel with the forward kernel, as far as its variant is known now."""
    if not operands.inputs.is_cuda:
        return
    sizes = _plan(kind, operands, backward=True)
    d_inputs = operands.inputs.requires_grad and _does_inputs(kind, operands, sizes)
    of = Variant.of(kind, operands, sizes, bias)
    name = "whole_backward" if sizes.whole else "wide_backward" if sizes.wide else "backward"
    begin(partial(of.code, name, D_INPUTS=int(d_inputs)))


@ByVariant
def _forward(of: Variant, save: bool) -> Kernel:
    kind, sizes = of.kind, of.sizes
    left = kind.blocks + 2 + kind.carried + (kind.split >= 0) if save else 1
    if sizes.whole:
        name, signature = "whole_forward", "20P2if"
        shared = plan.whole_forward_shared(
            of.units, of.dtype.itemsize, kind.blocks, left, of.inputs, plan.aside(sizes, 1, kind.blocks, False)
        )
    elif sizes.wide:
        name, signature = "wide_forward", "20P2if"
        shared = plan.wide_forward_shared(sizes, kind.blocks)
    else:
        name, signature = "forward", "19P2if"
        shared = plan.forward_shared(sizes, parts_of(kind, of.dtype), kind.blocks, left, of.inputs)
    return of.kernel(name, signature, shared, SAVE=int(save))


@ByVariant
def _backward(of: Variant, d_inputs: bool) -> Kernel:
    kind, sizes, parted = of.kind, of.sizes, of.kind.split >= 0
    if sizes.whole:
        name, signature = "whole_backward", "24P3if"
        pages = (1 + kind.carried, 1 + parted)
        back = plan.aside(sizes, 1, kind.blocks, True)
        shared = plan.whole_backward_shared(of.units, of.dtype.itemsize, kind.blocks, *pages, of.inputs, d_inputs, back)
    elif sizes.wide:
        name, signature = "wide_backward", "23P3if"
        shared = plan.wide_backward_shared(sizes, kind.blocks)
    else:
        name, signature = "backward", "22P3if"
        given, left = kind.blocks + 2 + kind.carried + parted, kind.blocks + parted
        shared = plan.backward_shared(sizes, parts_of(kind, of.dtype), kind.blocks, given, left, of.inputs)
    return of.kernel(name, signature, shared, D_INPUTS=int(d_inputs))
