"""The way back through a step: what can be computed before derivatives arrive, and what is left to do then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add

from .expression import Expression, constant, ordered, variable
from .operations import KNOWN


def way_back(
    outputs: Sequence[tuple[Expression, Expression]], sources: Sequence[str]
) -> tuple[list[Expression], dict[str, Expression]]:
    """Backpropagation in two parts: slopes that are known before it begins, and sums of products of these.

    The derivative by every node is a derivative that arrives, or a sum of such, times a factor that is known. Factors
    are multiplied on the way, until derivatives that arrive on different ways have to be added.

    Args:
        outputs: formulas, each with the variable that is the derivative by it.
        sources: names of the variables that derivatives are wanted by.

    Returns:
        The slopes, and derivatives by source in terms of `slope0`, ... and what arrives.
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
