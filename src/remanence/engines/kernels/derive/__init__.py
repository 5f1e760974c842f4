"""From the equation of a gate, written once in torch, to code for kernels.

trace       the equation as a formula, read off one run
expression, operations    what formulas are made of, simplified, and their derivatives
gate        all that kernels need of a gate
printing, cpp, triton    the formulas as code
evaluate    the formulas on tensors
"""

from .gate import DerivedGate, derived, unpaddable, why_not
from .trace import NotDerivableError

__all__ = ["DerivedGate", "NotDerivableError", "derived", "unpaddable", "why_not"]
