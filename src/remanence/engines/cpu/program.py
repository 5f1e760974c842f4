"""Formulas as a list of torch's operations, each into a buffer that is made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..kernels.derive.expression import Expression, ordered
from .buffers import Scratch


class Call(NamedTuple):
    """One operation."""

    function: Callable[..., Any]
    inputs: tuple[Expression, ...]
    result: Expression
    buffer: str
    """Where the result goes, unless it has a place of its own."""


class Program:
    """What some formulas take.

    Args:
        outputs: what is computed.
        name: of its buffers: programs that run at the same time have different ones.
    """

    def __init__(self, outputs: Sequence[Expression], name: str) -> None:
        self.outputs = tuple(outputs)
        nodes = ordered(self.outputs, _parts)
        self.constants = {node: node.number for node in nodes if node.operation == "constant"}
        self.variables = {node: str(node.value) for node in nodes if node.operation == "variable"}
        self.calls: list[Call] = []
        last_use = {part: place for place, node in enumerate(nodes) for part in _parts(node)}
        free: list[str] = []
        held: dict[Expression, str] = {}
        for place, node in enumerate(nodes):
            if node.operation in ("constant", "variable"):
                continue
            kind = "condition" if node.is_condition else "value"
            reusable = [buffer for buffer in free if buffer.startswith(f"{name} {kind}")]
            buffer = reusable[-1] if reusable else f"{name} {kind} {place}"
            if reusable:
                free.remove(buffer)
            held[node] = buffer
            self.calls.append(Call(_function(node), _parts(node), node, buffer))
            # Not before: some operations of torch may not write over what they read.
            done = {part for part in _parts(node) if part in held and last_use[part] == place}
            free += [held[part] for part in done if part not in self.outputs]

    def run(
        self,
        given: Mapping[str, Tensor],
        places: Mapping[Expression, Tensor],
        scratch: Scratch,
        steps: int | None = None,
    ) -> list[Tensor]:
        """Values of the outputs.

        Args:
            given: variables by name.
            places: where results go that do not go to a buffer.
            scratch: buffers.
            steps: of a stretch; None for a single step.
        """
        values: dict[Expression, Tensor] = {node: given[name] for node, name in self.variables.items()}
        for node, number in self.constants.items():
            values[node] = scratch.full(number, steps)
        for function, inputs, result, buffer in self.calls:
            out = places.get(result)
            if out is None:
                out = scratch.condition(buffer, steps) if result.is_condition else scratch(buffer, steps)
            values[result] = function(*(values[part] for part in inputs), out=out)
        for output in self.outputs:
            if output in places and not _parts(output):
                places[output].copy_(values[output])
        return [values[output] for output in self.outputs]


def _parts(node: Expression) -> tuple[Expression, ...]:
    """What an operation of torch takes for a node: some do two at once."""
    if node.operation == "add":
        for x, y in (node.inputs, node.inputs[::-1]):
            if y.operation == "neg":
                return x, y.inputs[0]
    if node.operation == "clamp_max" and node.inputs[0].operation == "clamp_min":
        low, high = node.inputs[0].inputs[1], node.inputs[1]
        if low.is_constant() and high.is_constant():
            return (node.inputs[0].inputs[0],)
    return node.inputs


def _function(node: Expression) -> Callable[..., Any]:
    if node.operation == "add" and _parts(node) is not node.inputs:
        return torch.sub
    if node.operation == "clamp_max" and len(_parts(node)) == 1:
        low, high = node.inputs[0].inputs[1].number, node.inputs[1].number

        def clamp(x: Tensor, out: Tensor) -> Tensor:
            return torch.clamp(x, low, high, out=out)

        return clamp
    return FUNCTIONS[node.operation]


def _sigmoid_complement(x: Tensor, out: Tensor) -> Tensor:
    return torch.neg(x, out=out).sigmoid_()


def _cosh_from_sinh(x: Tensor, out: Tensor) -> Tensor:
    torch.mul(x, x, out=out).add_(1).sqrt_()
    return torch.minimum(out, x.abs().add_(1), out=out)  # the same, but where the square overflows


OWN_NAMES = (
    *("add", "mul", "neg", "reciprocal", "where", "lt", "le", "eq", "abs", "sign", "maximum", "minimum", "floor"),
    *("exp", "expm1", "log", "log1p", "sigmoid", "tanh", "sinh", "cosh", "asinh", "sqrt", "rsqrt", "pow"),
    *("sin", "cos", "tan", "atan", "erf"),
)
"""Operations that torch calls as formulas do."""
FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(torch, name) for name in OWN_NAMES} | {
    "isnan": lambda x, out: torch.ne(x, x, out=out),
    "not": torch.logical_not,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "clamp_min": torch.maximum,
    "clamp_max": torch.minimum,
    "sigmoid_complement": _sigmoid_complement,
    "cosh_from_sinh": _cosh_from_sinh,
}
"""Operations of torch that write into a place."""
