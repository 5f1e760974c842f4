"""Between a unit's forget bias and its timescale.

A unit with forget value f keeps exp(-n/T) of its cell over n steps, T = -1/log f. Everything is computed from
logit(f) in float64: f itself rounds to one long before T = 1e7.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..gates import Gate, gate_named


def as_float64(values: object) -> Tensor:
    """A float64 tensor; from plain numbers, on the CPU whatever torch's default device is."""
    if isinstance(values, Tensor):
        return values.double()
    return torch.as_tensor(values, dtype=torch.float64, device="cpu")


def logit_to_timescale(logit: Tensor) -> Tensor:
    """-1/log(sigmoid(logit)), float64; plus infinity where a unit forgets nothing, as -log 1 would not give."""
    return 1 / softplus(-logit.double(), threshold=40)  # above it, log(1 + e^x) is x to the last digit


def timescale_to_logit(timescale: Tensor | float) -> Tensor:
    """The logit of exp(-1/timescale), float64: -log(exp(1/T) - 1), written so that nothing overflows."""
    timescale = as_float64(timescale)
    if not bool(((timescale > 0) & timescale.isfinite()).all()):
        raise ValueError(f"expected timescales to be positive and finite, got {_worst(timescale)}")
    rate = 1 / timescale
    return -(rate + torch.log(-torch.expm1(-rate)))


def bias_to_timescale(bias: Tensor | float, gate: str | Gate = "sigmoid") -> Tensor:
    """Timescale of a unit of this gate with this forget bias and no input, float64.

    Gates with several biases are taken as they start: `refine` with 0 beside it, `ur` with `-bias`.
    """
    gate = gate_named(gate)
    return logit_to_timescale(gate.logit(*gate.complete(as_float64(bias))))


def timescale_to_bias(timescale: Tensor | float, gate: str | Gate = "sigmoid") -> Tensor:
    """Forget bias at which a unit of this gate has this timescale, float64: the inverse of `bias_to_timescale`."""
    gate = gate_named(gate)
    bias = gate.bias(timescale_to_logit(timescale))
    if not bool(bias.isfinite().all()):
        beyond = as_float64(timescale)[~bias.isfinite()].flatten()[0]
        raise ValueError(f"expected timescales that a bias of gate {gate.name} can give, got {float(beyond)}")
    return bias


def _worst(timescale: Tensor) -> float:
    wrong = timescale[~((timescale > 0) & timescale.isfinite())]
    return float(wrong.flatten()[0])
