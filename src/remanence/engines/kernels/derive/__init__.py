"""From the equation of a gate, written once in torch, to code for kernels: traced, differentiated, simplified, printed."""

from .gate import DerivedGate, derived, why_not
from .trace import NotDerivableError

__all__ = ["DerivedGate", "NotDerivableError", "derived", "why_not"]
