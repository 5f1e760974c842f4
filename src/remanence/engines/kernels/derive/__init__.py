"""Code generation: from the equation of a gate or cell, written once in torch, to kernel code.

trace       records the equation as an expression graph in one run
expression, operations    nodes of the graph, simplification, and symbolic differentiation
gate        everything that kernels need of a gate
cell        the same for a cell without a hand-written step
fixed, back hoists values that depend on weights alone; the backward pass through a step
printing, cpp, triton    prints the formulas as code
evaluate    evaluates the formulas on tensors
memoised    what is derived, by the class and settings of a gate or cell
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
