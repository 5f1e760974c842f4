"""Loop-invariant code motion: values that depend on weights alone are hoisted out of the step and computed once."""

from __future__ import annotations

from collections.abc import Sequence

from .expression import Expression, constant, ordered, substituted, variable, variables, where
from .operations import gradients


def hoisted(outputs: list[Expression], own: list[str]) -> tuple[list[Expression], list[Expression]]:
    """Formulas with `fixed0`, ... for all subexpressions of per-unit weights alone, and those subexpressions."""
    dependent: dict[Expression, bool] = {}
    fixed: list[Expression] = []
    conditions: dict[Expression, Expression] = {}
    for node in ordered(outputs):
        if node.operation == "variable":
            dependent[node] = str(node.value) not in own
        else:
            dependent[node] = any(dependent[part] for part in node.inputs)
    for node in ordered(outputs):
        users = node.inputs if dependent[node] else ()
        for part in users:
            if not dependent[part] and _has_weights(part, own):
                if part.is_condition:  # stored as 1 or 0
                    conditions[part] = where(part, 1.0, 0.0)
                fixed += [each for each in (conditions.get(part, part),) if each not in fixed]
    fixed += [node for node in outputs if not dependent[node] and _has_weights(node, own) and node not in fixed]
    places = {node: variable(f"fixed{i}") for i, node in enumerate(fixed)}
    replaced = places | {part: constant(0.5) < places[number] for part, number in conditions.items()}
    return substituted(outputs, replaced), fixed


def _has_weights(node: Expression, own: list[str]) -> bool:
    return any(name in own for name in variables([node]))


def partials(output: Expression, sources: list[str]) -> dict[str, Expression]:
    """Derivatives of a formula with respect to variables, without those that are zero everywhere."""
    found = gradients(output)
    by = {name: found[variable(name)] for name in sources if variable(name) in found}
    return {name: slope for name, slope in by.items() if not slope.is_constant(0.0)}


def by_weights(fixed: list[Expression], own: list[str]) -> list[list[Expression]]:
    """Derivatives of each fixed value with respect to each of the weights."""
    return [[partials(value, own).get(name, constant(0.0)) for name in own] for value in fixed]


def sums_by_weights(by_own: Sequence[Sequence[Expression]], weights: int) -> list[Expression]:
    """Gradients of all weights, from those of the fixed values, `d_fixed0`, ..., and the result of `by_weights`."""
    sums = [constant(0.0)] * weights
    for i, row in enumerate(by_own):
        for place, slope in enumerate(row):
            if not slope.is_constant(0.0):
                sums[place] = sums[place] + variable(f"d_fixed{i}") * slope
    return sums
