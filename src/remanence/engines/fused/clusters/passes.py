"""The recurrence by clusters: what the kernels are given, and starting them."""

from __future__ import annotations

from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ...machine import lacking
from ..launch import ALIGNMENT, Found
from . import plan
from .compiler import machine_code
from .driver import Kernel, architecture
from .engine import largest_cluster

if TYPE_CHECKING:
    from ..launch import Derivatives, Final, Given, Kept, Kind

NARROW = 16
"""Widest inputs that are multiplied by these kernels."""
NUMBERS = {torch.float32: "float", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def parts_of(kind: Kind, dtype: torch.dtype) -> int:
    """How many float16 numbers stand for a factor of a product."""
    return plan.parts(dtype, kind.precision == "tf32")


def alignment(kind: Kind, given: Given) -> int:
    """What the number of units has to be a multiple of, see `launch.Recurrence`: kernels for wide layers take any."""
    padded = given.weight_hh.shape[-1] % ALIGNMENT and not _plan(kind, given, backward=False).wide
    return ALIGNMENT if padded else 1


def narrow(kind: Kind, given: Given) -> int:
    """How many inputs the kernels multiply, see `launch.Recurrence`."""
    return _narrow(given, _plan(kind, given, backward=False))


def _narrow(given: Given, sizes: plan.Plan) -> int:
    width = given.inputs.shape[-1]
    return 0 if sizes.wide or width > NARROW else width


def keeps_before(kind: Kind, given: Given) -> bool:
    """Whether all h_{t-1} are kept: for the products of several replicas, by the kernels that do it on the way."""
    return given.inputs.dim() == 4 and _plan(kind, given, backward=False).whole


def split(kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """The recurrent matrix as the kernels take it, which is as it is."""
    return matrix, None


def forward(kind: Kind, given: Given, scale: Tensor | None, pre: Tensor | None, kept: Kept, final: Final) -> None:
    """All steps; fills what it is given, see `launch.forward`."""
    *lead, steps, rows, _ = given.inputs.shape
    replicas = lead[0] if lead else 1
    sizes = _plan(kind, given, backward=False)
    bias, *biases = _biases(given)
    variant = Variant.of(kind, given, sizes, bias)
    kernel = _forward(variant, kept.pre is not None)
    tensors = (
        *(pre, _wide(given.inputs) if variant.inputs else None, given.weight_ih, _aligned(given.weight_hh)),
        *(*biases, given.dt, given.lengths, *map(_wide, given[8:])),
        *(kept.outputs, kept.cells, kept.ages, kept.parts, *final),
    )
    if sizes.whole:
        tensors = (*tensors, kept.before)
    elif sizes.wide:
        tensors = (*tensors, _cellar(sizes, replicas, given.inputs.device))
    kernel.start(sizes.groups(rows, replicas), *map(_address, tensors), steps, rows, kind.eps, kind.fixed_p, kind.beta)


def backward(kind: Kind, given: Given, scale: Tensor | None, kept: Kept, by: Derivatives) -> Found:
    """All steps back; fills what it is given, see `launch.backward`."""
    *lead, steps, rows, width = given.inputs.shape
    units = given.weight_hh.shape[-1]
    replicas = lead[0] if lead else 1
    dtype, device = given.inputs.dtype, given.inputs.device
    assert kept.pre is not None
    sizes = _plan(kind, given, backward=True)
    groups = sizes.groups(rows, replicas)
    d_inputs = torch.empty_like(given.inputs) if by.wants_inputs and _does_inputs(kind, given, sizes) else None
    bias, *_, p_hat = _biases(given)
    variant = Variant.of(kind, given, sizes, bias)
    inputs = variant.inputs
    kernel = _backward(variant, d_inputs is not None)
    new = partial(torch.empty, dtype=torch.float32, device=device)
    kinds = kind.blocks + (kind.split >= 0) + kind.has_age
    shares = new(*lead, groups // replicas, (kinds + kind.blocks * inputs) * units)
    d_dt = new(sizes.warps * sizes.cluster, *lead, steps, rows) if by.wants_dt else None
    tensors = (
        *(kept.pre, _wide(given.inputs) if inputs else None, _aligned(given.weight_hh)),
        *(p_hat, given.dt, given.lengths, _wide(given.cell), _wide(given.age), kept.cells, kept.ages, kept.parts),
        *(_aligned(by.outputs), *map(_wide, by.final)),
        *(by.pre, by.parts, *by.state, shares, d_dt),
    )
    if sizes.whole:
        tensors = (*tensors, None if d_inputs is None else _aligned(given.weight_ih.contiguous()), d_inputs)
    elif sizes.wide:
        tensors = (*tensors, _cellar(sizes, replicas, device))
    kernel.start(groups, *map(_address, tensors), replicas, steps, rows, kind.eps, kind.fixed_p, kind.beta)
    # For both biases once: torch copies what it gets twice. In their dtype at once, not one after the other.
    total, again = shares.expand(2, *shares.shape).sum(-2).to(bias).unbind()
    blocks = kind.blocks * units
    return Found(
        p_hat=None if p_hat is None else total[..., (kinds - 1) * units : kinds * units],
        dt=None if d_dt is None else d_dt.sum(0),
        inputs=d_inputs,
        weight_ih=total[..., kinds * units :].view(*lead, blocks, width).to(dtype) if inputs else None,
        bias=total[..., :blocks],
        bias_hh=again[..., :blocks],
        bias_hn=total[..., blocks : blocks + units] if kind.split >= 0 else None,
    )


def _cellar(sizes: plan.Plan, replicas: int, device: torch.device) -> Tensor | None:
    """Memory for the part of the matrix that has no room on the chip."""
    if not sizes.streamed:
        return None
    return torch.empty(
        replicas * sizes.cluster * sizes.streamed * 32 * sizes.warps, 4, dtype=torch.int32, device=device
    )


def _does_inputs(kind: Kind, given: Given, sizes: plan.Plan) -> bool:
    """Whether the backward pass has derivatives by the inputs on the way: by narrow ones, without padding of units."""
    unpadded = given.weight_ih.shape[-2] == kind.blocks * given.weight_hh.shape[-1]
    return sizes.whole and kind.split < 0 and unpadded and _narrow(given, sizes) > 0


def _biases(given: Given) -> tuple[torch.dtype, Tensor | None, Tensor | None, Tensor | None]:
    """Which dtype biases and p_hat have, and they themselves: all of them that of the inputs, or float32."""
    dtype, bias_ih, bias_hh, p_hat = given.inputs.dtype, given.bias_ih, given.bias_hh, given.p_hat
    if all(value is None or value.dtype == dtype for value in (bias_ih, bias_hh, p_hat)):
        return dtype, bias_ih, bias_hh, p_hat
    return torch.float32, _wide(bias_ih), _wide(bias_hh), _wide(p_hat)


def _wide(value: Tensor | None) -> Tensor | None:
    """In float32, aligned."""
    return None if value is None else _aligned(value.float())


def _aligned(value: Tensor | None) -> Tensor | None:
    """Where four numbers can be read at once."""
    return value if value is None or value.data_ptr() % 16 == 0 else value.clone()


def _address(value: Tensor | None) -> int:
    return 0 if value is None else value.data_ptr()


def _plan(kind: Kind, given: Given, backward: bool) -> plan.Plan:
    *lead, steps, rows, _ = given.inputs.shape
    parts, device = parts_of(kind, given.inputs.dtype), given.inputs.device
    replicas, units = lead[0] if lead else 1, given.weight_hh.shape[-1]
    countable = replicas * steps * rows * kind.blocks * units < 4 * 2**32
    chip = _processors(device), largest_cluster(device)
    return plan.make(units, rows, replicas, parts, backward, *chip, countable)


@lru_cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


class Variant(NamedTuple):
    """Which code a kernel of either pass is compiled to."""

    kind: Kind
    units: int
    inputs: int
    """Those that it multiplies."""
    sizes: plan.Plan
    dtype: torch.dtype
    bias: torch.dtype
    has_dt: bool
    has_lengths: bool
    device: torch.device

    @classmethod
    def of(cls, kind: Kind, given: Given, sizes: plan.Plan, bias: torch.dtype) -> Variant:
        """That which takes what is given."""
        units, inputs = given.weight_hh.shape[-1], given.inputs
        there = given.dt is not None, given.lengths is not None
        return cls(kind, units, _narrow(given, sizes), sizes, inputs.dtype, bias, *there, inputs.device)

    def kernel(self, name: str, signature: str, shared: int, **more: int) -> Kernel:
        """The kernel, with that many bytes of shared memory and constants that only one pass has."""
        code = machine_code(name, self.constants() | more, architecture(self.device))
        return Kernel(code, name, signature, 32 * self.sizes.warps, self.sizes.cluster, shared, self.device)

    def constants(self) -> dict[str, Any]:
        """What the source of both passes leaves open."""
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


@cache
def _forward(of: Variant, save: bool) -> Kernel:
    kind, sizes = of.kind, of.sizes
    left = kind.blocks + 2 + kind.has_age + (kind.split >= 0) if save else 1
    if sizes.whole:
        name, signature = "whole_forward", "20P2i3f"
        shared = plan.whole_forward_shared(of.units, of.dtype.itemsize, kind.blocks, left, of.inputs)
    elif sizes.wide:
        name, signature = "wide_forward", "20P2i3f"
        shared = plan.wide_forward_shared(sizes)
    else:
        name, signature = "forward", "19P2i3f"
        shared = plan.forward_shared(sizes, parts_of(kind, of.dtype), kind.blocks, left, of.inputs)
    return of.kernel(name, signature, shared, SAVE=int(save))


@cache
def _backward(of: Variant, d_inputs: bool) -> Kernel:
    kind, sizes, parted = of.kind, of.sizes, of.kind.split >= 0
    if sizes.whole:
        name, signature = "whole_backward", "24P3i3f"
        pages = (1 + kind.has_age, 1 + parted)
        shared = plan.whole_backward_shared(of.units, of.dtype.itemsize, kind.blocks, *pages, of.inputs, d_inputs)
    elif sizes.wide:
        name, signature = "wide_backward", "23P3i3f"
        shared = plan.wide_backward_shared(sizes)
    else:
        name, signature = "backward", "22P3i3f"
        given, left = kind.blocks + 2 + kind.has_age + parted, kind.blocks + parted
        shared = plan.backward_shared(sizes, parts_of(kind, of.dtype), given, left, of.inputs)
    return of.kernel(name, signature, shared, D_INPUTS=int(d_inputs))
