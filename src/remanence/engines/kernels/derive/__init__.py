"""From the equation of a gate, or of a whole cell, written once in torch, to code for kernels.

trace       the equation as a formula, read off one run
expression, operations    what formulas are made of, simplified, and their derivatives
gate        all that kernels need of a gate
cell        the same of a cell that has no step by hand
fixed, back what depends on weights alone; the way back through a step
printing, cpp, triton    the formulas as code
evaluate    the formulas on tensors
"""

from .cell import DerivedCell, derived_cell, unpaddable_cell, why_no_cell
from .gate import DerivedGate, derived, unpaddable, why_not
from .trace import NotDerivableError

__all__ = [
    "DerivedCell",
    "DerivedGate",
    "NotDerivableError",
    "derived",
    "derived_cell",
    "unpaddable",
    "unpaddable_cell",
    "why_no_cell",
    "why_not",
]
