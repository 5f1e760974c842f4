"""Conversion between a unit's forget bias and its timescale.

A unit with forget value f keeps exp(-n/T) of its cell over n steps, T = -1/log f. Everything is computed from
logit(f) in float64, because f is too close to one for float32 long before T = 1e7.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..gates import Gate, gate_named


def as_float64(values: object) -> Tensor:
    """Values as a float64 tensor; plain numbers go to the CPU regardless of torch's default device."""
    if isinstance(values, Tensor):
        return values.double()
    return torch.as_tensor(values, dtype=torch.float64, device="cpu")


def logit_to_timescale(logit: Tensor) -> Tensor:
    """-1/log(sigmoid(logit)) in float64; infinity if a unit forgets nothing.

    Args:
        logit: Logit of the forget value, any shape.

    Examples:
        >>> import torch
        >>> from remanence import timescales
        >>> timescales.logit_to_timescale(torch.tensor([0.0, 4.6]))
        tensor([ 1.4427, 99.9835], dtype=torch.float64)
    """
    return 1 / softplus(-logit.double(), threshold=40)  # above 40, log(1 + e^x) equals x in float64


def timescale_to_logit(timescale: Tensor | float) -> Tensor:
    """The logit of exp(-1/timescale) in float64: -log(exp(1/T) - 1), without overflow.

    Args:
        timescale: Positive finite timescales in steps, any shape.

    Raises:
        ValueError: A timescale is not positive or not finite.

    Examples:
        >>> from remanence import timescales
        >>> timescales.timescale_to_logit(100.0)
        tensor(4.6002, dtype=torch.float64)
    """
    timescale = as_float64(timescale)
    if not bool(((timescale > 0) & timescale.isfinite()).all()):
        raise ValueError(f"expected timescales to be positive and finite, got {_worst(timescale)}")
    rate = 1 / timescale
    return -(rate + torch.log(-torch.expm1(-rate)))


def bias_to_timescale(bias: Tensor | float, gate: str | Gate = "sigmoid") -> Tensor:
    """Timescale in steps, float64, of a unit with this gate and this forget bias, without input.

    The second bias of gates that have two is that of the initialisation: 0 for `refine`, `-bias` for `ur`.

    Args:
        bias: Forget biases, any shape.
        gate: A name or a `remanence.gates.Gate`.

    Raises:
        ValueError: The gate has no timescale (power_law).

    Examples:
        >>> from remanence import timescales
        >>> timescales.bias_to_timescale(1.0)
        tensor(3.1922, dtype=torch.float64)
        >>> timescales.bias_to_timescale(1.0, "fast")
        tensor(3.7164, dtype=torch.float64)
    """
    gate = gate_named(gate)
    return logit_to_timescale(gate.logit(*gate.complete(as_float64(bias))))


def timescale_to_bias(timescale: Tensor | float, gate: str | Gate = "sigmoid") -> Tensor:
    """Forget bias, float64, at which a unit with this gate has this timescale: the inverse of `bias_to_timescale`.

    Args:
        timescale: Positive finite timescales in steps, any shape.
        gate: A name or a `remanence.gates.Gate`.

    Raises:
        ValueError: A timescale is not positive and finite or out of reach, or the gate has no timescale (power_law).

    Examples:
        >>> from remanence import timescales
        >>> timescales.timescale_to_bias(100.0)
        tensor(4.6002, dtype=torch.float64)
    """
    gate = gate_named(gate)
    bias = gate.bias(timescale_to_logit(timescale))
    if not bool(bias.isfinite().all()):
        beyond = as_float64(timescale)[~bias.isfinite()].flatten()[0]
        raise ValueError(f"expected timescales that gate {gate.name} can reach with a finite bias, got {float(beyond)}")
    return bias


def _worst(timescale: Tensor) -> float:
    wrong = timescale[~((timescale > 0) & timescale.isfinite())]
    return float(wrong.flatten()[0])
