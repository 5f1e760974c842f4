"""Timescales: set them (`Chrono`, `Uniform`, `InverseGamma`, `Fixed`), convert them, read them (`of`, `estimate`)."""

from .conversions import (
    bias_to_timescale,
    logit_to_timescale,
    timescale_to_bias,
    timescale_to_logit,
)
from .initial import Chrono, Fixed, InverseGamma, Timescales, Uniform
from .measured import estimate, of

KNOWN: dict[str, type[Timescales]] = {
    "chrono": Chrono,
    "uniform": Uniform,
    "inverse-gamma": InverseGamma,
    "fixed": Fixed,
}
"""The names used in configuration files."""

__all__ = [
    "KNOWN",
    "Chrono",
    "Fixed",
    "InverseGamma",
    "Timescales",
    "Uniform",
    "bias_to_timescale",
    "estimate",
    "logit_to_timescale",
    "of",
    "timescale_to_bias",
    "timescale_to_logit",
]
