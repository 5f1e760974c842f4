"""Gates as functions of their pre-activation (fast-gate figure 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..gates import Gate, gate_named
from .plain import Result


@dataclass(frozen=True, eq=False)
class GateFunctions(Result):
    """Gates by name, evaluated on two grids in float64."""

    z: NDArray[numpy.float64]
    """Pre-activations, `(points,)`."""
    forget: dict[str, NDArray[numpy.float64]]
    """phi(z), `(points,)` for every gate."""
    slope: dict[str, NDArray[numpy.float64]]
    """phi'(z)."""
    complement: dict[str, NDArray[numpy.float64]]
    """1 - phi(z), at full precision even where phi rounds to one."""
    tail_z: NDArray[numpy.float64]
    """Pre-activations of the tail, `(points,)`."""
    tail_log10: dict[str, NDArray[numpy.float64]]
    """log10(1 - phi(z)) there; a logarithm, because 1 - phi of the fast gate underflows every float from z = 8."""


def gate_functions(
    gates: Sequence[str | Gate] = ("softsign", "sigmoid", "fast"),
    *,
    span: tuple[float, float] = (-6.0, 6.0),
    tail: tuple[float, float] = (0.0, 8.0),
    points: int = 481,
) -> GateFunctions:
    """Forget values phi, slopes and complements 1 - phi, as computed by the gates of the package.

    Args:
        gates: names or gate objects that depend only on the current pre-activation. If a gate has several
            pre-activations, the others have their initial value: 0 for `refine`, which makes it a sigmoid.
        span: first and last pre-activation.
        tail: first and last pre-activation for the logarithm of 1 - phi.
        points: points per grid.
    """
    if points < 2:
        raise ValueError(f"expected at least two points, got {points}")
    known = {gate.name: gate for gate in map(gate_named, gates)}
    z = torch.linspace(*span, points, dtype=torch.float64, device="cpu")
    tail_z = torch.linspace(*tail, points, dtype=torch.float64, device="cpu")
    tails = {name: _log10_complement(gate, tail_z) for name, gate in known.items()}
    values = {name: _values(gate, z) for name, gate in known.items()}
    return GateFunctions(
        z=z.numpy(),
        forget={name: forget.numpy() for name, (forget, _, _) in values.items()},
        slope={name: slope.numpy() for name, (_, slope, _) in values.items()},
        complement={name: complement.numpy() for name, (_, _, complement) in values.items()},
        tail_z=tail_z.numpy(),
        tail_log10={name: tail.numpy() for name, tail in tails.items()},
    )


def _values(gate: Gate, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """phi, phi' and 1 - phi, `(points,)` each."""
    with torch.enable_grad():
        z = z.clone().requires_grad_()
        forgetting = gate(gate.complete(z), (), {}, None)
        (rising,) = torch.autograd.grad(forgetting.forget.sum(), z, retain_graph=True)
        (falling,) = torch.autograd.grad(forgetting.complement.sum(), z)
    forget, complement = forgetting.forget.detach(), forgetting.complement.detach()
    # The two slopes are equal in exact arithmetic; the one of the smaller value is more precise.
    return forget, torch.where(forget < complement, rising, -falling), complement


def _log10_complement(gate: Gate, z: Tensor) -> Tensor:
    return logsigmoid(-gate.logit(*gate.complete(z))) / math.log(10)
