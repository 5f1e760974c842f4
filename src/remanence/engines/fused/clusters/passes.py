"""The recurrence by clusters: what the kernels are given, and starting them."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..launch import Found
from . import plan
from .compiler import machine_code
from .driver import Kernel, architecture
from .engine import largest_cluster

if TYPE_CHECKING:
    from ..launch import Derivatives, Final, Given, Kept, Kind

OVERLAYS = True
"""See `launch.Recurrence`."""
NUMBERS = {torch.float32: "float", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def parts_of(kind: Kind, dtype: torch.dtype) -> int:
    """How many float16 numbers stand for a factor of a product."""
    return plan.parts(dtype, kind.precision == "tf32")


def split(kind: Kind, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """The recurrent matrix as the kernels take it, which is as it is."""
    return matrix, None


def forward(kind: Kind, given: Given, scale: Tensor | None, pre: Tensor, kept: Kept, final: Final) -> None:
    """All steps; fills what it is given, see `launch.forward`."""
    *lead, steps, rows, _ = given.inputs.shape
    units = given.weight_hh.shape[-1]
    replicas = lead[0] if lead else 1
    dtype = given.inputs.dtype
    parts = parts_of(kind, dtype)
    sizes = _plan(units, rows, replicas, parts, given.inputs.device)
    kernel = _forward(
        kind, units, sizes, dtype, given.dt is not None, given.lengths is not None, kept.pre is not None, pre.device
    )
    tensors = (
        *(pre, given.weight_hh, *map(_wide, (given.bias_ih, given.bias_hh, given.p_hat)), given.dt),
        *(given.lengths, *map(_wide, given[8:]), kept.outputs, *kept[2:], *final),
    )
    kernel.start(sizes.groups(rows, replicas), *map(_address, tensors), steps, rows, kind.eps, kind.fixed_p, kind.beta)


def backward(kind: Kind, given: Given, scale: Tensor | None, kept: Kept, by: Derivatives) -> Found:
    """All steps back; fills what it is given, see `launch.backward`."""
    *lead, steps, rows, _ = given.inputs.shape
    units = given.weight_hh.shape[-1]
    replicas = lead[0] if lead else 1
    dtype = given.inputs.dtype
    parts = parts_of(kind, dtype)
    assert kept.pre is not None
    sizes = _plan(units, rows, replicas, parts, given.inputs.device)
    groups = sizes.groups(rows, replicas)
    kernel = _backward(
        kind,
        units,
        sizes,
        dtype,
        by.pre.stride(-2) // by.pre.shape[-1],
        given.dt is not None,
        given.lengths is not None,
        by.pre.device,
    )
    new = kept.pre.new_empty
    kinds = kind.blocks + (kind.split >= 0) + kind.has_age
    shares = new(*lead, groups // replicas, kinds * units)
    d_dt = new(sizes.warps * sizes.cluster, *lead, steps, rows) if by.wants_dt else None
    tensors = (
        *(kept.pre, given.weight_hh, _wide(given.p_hat), given.dt, given.lengths, _wide(given.cell)),
        *(_wide(given.age), *kept[2:], *map(_wide, (by.outputs, *by.final)), by.pre, by.parts, *by.state, shares, d_dt),
    )
    kernel.start(groups, *map(_address, tensors), replicas, steps, rows, kind.eps, kind.fixed_p, kind.beta)
    totals = shares.sum(-2)
    blocks = kind.blocks * units
    return Found(
        p_hat=None if given.p_hat is None else totals[..., -units:],
        dt=None if d_dt is None else d_dt.sum(0),
        bias=totals if kinds == kind.blocks else totals[..., :blocks],
        bias_hn=totals[..., blocks : blocks + units] if kind.split >= 0 else None,
    )


def _wide(value: Tensor | None) -> Tensor | None:
    """In float32, and where four numbers can be read at once."""
    if value is None:
        return None
    value = value.float()
    return value if value.data_ptr() % 16 == 0 else value.clone()


def _address(value: Tensor | None) -> int:
    return 0 if value is None else value.data_ptr()


def _plan(units: int, rows: int, replicas: int, parts: int, device: torch.device) -> plan.Plan:
    return plan.make(units, rows, replicas, parts, _processors(device), largest_cluster(device))


@lru_cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def _forward(
    kind: Kind,
    units: int,
    sizes: plan.Plan,
    dtype: torch.dtype,
    has_dt: bool,
    has_lengths: bool,
    save: bool,
    device: torch.device,
) -> Kernel:
    parts = parts_of(kind, dtype)
    constants = _constants(kind, units, sizes, parts, has_dt, has_lengths) | {
        "SAVE": int(save),
        "NUMBER": NUMBERS[dtype],
    }
    left = kind.blocks + 2 + kind.has_age + (kind.split >= 0) if save else 1
    shared = plan.forward_shared(sizes, parts, kind.blocks, left)
    code = machine_code("forward", constants, architecture(device))
    return Kernel(code, "forward", "17P2i3f", 32 * sizes.warps, sizes.cluster, shared, device)


@cache
def _backward(
    kind: Kind,
    units: int,
    sizes: plan.Plan,
    dtype: torch.dtype,
    apart: int,
    has_dt: bool,
    has_lengths: bool,
    device: torch.device,
) -> Kernel:
    parts = parts_of(kind, dtype)
    constants = _constants(kind, units, sizes, parts, has_dt, has_lengths) | {"NUMBER": NUMBERS[dtype], "APART": apart}
    parted = kind.split >= 0
    shared = plan.backward_shared(sizes, parts, kind.blocks + 2 + kind.has_age + parted, kind.blocks + parted)
    code = machine_code("backward", constants, architecture(device))
    return Kernel(code, "backward", "21P3i3f", 32 * sizes.warps, sizes.cluster, shared, device)


def _constants(kind: Kind, units: int, sizes: plan.Plan, parts: int, has_dt: bool, has_lengths: bool) -> dict[str, Any]:
    return {
        "H": units,
        "BLOCKS": kind.blocks,
        "SPLIT": kind.split,
        "WARPS": sizes.warps,
        "CLUSTER": sizes.cluster,
        "TILES": sizes.tiles,
        "TOGETHER": sizes.together,
        "PARTS": parts,
        "COUPLED": int(kind.coupled),
        "HAS_AGE": int(kind.has_age),
        "HAS_DT": int(has_dt),
        "HAS_LENGTHS": int(has_lengths),
        "REVERSE": int(kind.reverse),
        **{f"CELL_{name.upper()}": f"{kind.cell}_{name}" for name in ("forward", "slopes", "backward")},
        **{f"GATE_{name.upper()}": f"{kind.gate}_{name}" for name in ("forward", "slopes", "backward")},
    }
