"""Backward pass through a step, split into a part before the incoming gradients are known and a part after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add

from .expression import Expression, constant, ordered, variable
from .operations import KNOWN


def way_back(
    outputs: Sequence[tuple[Expression, Expression]], sources: Sequence[str]
) -> tuple[list[Expression], dict[str, Expression]]:
    """Backpropagation in two parts: slopes (local derivatives) known beforehand, and sums of products with them.

    The gradient of every node is an incoming gradient, or a sum of several, times a known factor. Factors are
    multiplied along the path, until gradients that arrive on different paths have to be added.

    Args:
        outputs: Formulas, each with the variable that holds its incoming gradient.
        sources: Names of the variables to differentiate with respect to.

    Returns:
        The slopes, and the gradient of every source in terms of `slope0`, ... and the incoming gradients.
    """
    slopes: dict[Expression, int] = {}
    shares: dict[Expression, dict[Expression, Expression]] = {}
    found: dict[str, Expression] = {}

    def give(node: Expression, arriving: Expression, factor: Expression) -> None:
        of_node = shares.setdefault(node, {})
        of_node[arriving] = of_node[arriving] + factor if arriving in of_node else factor

    def term(arriving: Expression, factor: Expression) -> Expression:
        if factor.is_constant():
            return factor.number * arriving
        if factor.operation == "neg":
            return -term(arriving, factor.inputs[0])
        return arriving * variable(f"slope{slopes.setdefault(factor, len(slopes))}")

    for node, arriving in outputs:
        give(node, arriving, constant(1.0))
    for node in reversed(ordered([node for node, _ in outputs])):
        share = shares.pop(node, {})
        if not share or node.operation == "constant":
            continue
        if node.operation == "variable":
            if str(node.value) in sources:
                found[str(node.value)] = _sum(term(*each) for each in share.items())
            continue
        if len(share) > 1:
            share = {_sum(term(*each) for each in share.items()): constant(1.0)}
        ((arriving, factor),) = share.items()
        for part, slope in zip(node.inputs, KNOWN[node.operation].slopes(factor, node), strict=True):
            if slope is not None and not part.is_condition and not slope.is_constant(0.0):
                give(part, arriving, slope)
    return list(slopes), {name: found[name] for name in sources if name in found}


def _sum(terms: Iterable[Expression]) -> Expression:
    return reduce(add, terms)
