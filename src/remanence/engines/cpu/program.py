"""Formulas compiled to straight-line sequences of torch operations that write into preallocated buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..kernels.derive.expression import Expression, constant, ordered
from .buffers import Scratch

Bound = Callable[..., tuple[Tensor, ...]]
"""A program bound to its buffers. Arguments are the variables, sorted by name, then `place0`, ... for outputs."""


class FormulaProgram:
    """A generated function that evaluates some formulas.

    Args:
        outputs: Formulas to evaluate.
        placed: Indices of the outputs that go to tensors of the caller; the others go to buffers.
        name: Prefix of its buffers. Programs whose results are needed at the same time have different names.
    """

    def __init__(self, outputs: Sequence[Expression], placed: Sequence[int], name: str) -> None:
        self.outputs = tuple(outputs)
        self.uses = Counter(part for node in ordered(self.outputs) for part in node.inputs) + Counter(self.outputs)
        self.users: dict[Expression, set[str]] = {}
        for node in self.uses:
            for part in node.inputs:
                self.users.setdefault(part, set()).add(node.operation)
        self.expm1s = {node.inputs[0]: node for node in self.uses if node.operation == "expm1"}
        self.sinhs = {node.inputs[0]: node for node in self.uses if node.operation == "sinh"}
        nodes = ordered(self.outputs, self._parts)
        self.constants = [node for node in nodes if node.operation == "constant"]
        self.variables = sorted(str(node.value) for node in nodes if node.operation == "variable")
        self.placed = tuple(placed)
        places = {self.outputs[number]: f"place{number}" for number in reversed(self.placed)}
        names = {node: f"k{i}" for i, node in enumerate(self.constants)}
        names |= {node: str(node.value) for node in nodes if node.operation == "variable"}
        lines: list[str] = []
        self.buffers: list[tuple[str, bool]] = []
        last_use = {part: when for when, node in enumerate(nodes) for part in self._parts(node)}
        free: list[str] = []
        kinds: dict[str, bool] = {}
        for when, node in enumerate(nodes):
            if node in names:
                continue
            if node in places:
                names[node] = places[node]
            else:
                fitting = [buffer for buffer in free if kinds[buffer] == node.is_condition]
                names[node] = fitting[-1] if fitting else f"b{len(kinds)}"
                if fitting:
                    free.remove(names[node])
                elif names[node] not in kinds:
                    kinds[names[node]] = node.is_condition
                    self.buffers.append((f"{name} {len(self.buffers)}", node.is_condition))
            lines.append(self._line(node, names))
            # Freed only now: some torch operations may not write to a tensor that they read.
            done = dict.fromkeys(part for part in self._parts(node) if last_use[part] == when)
            free += [names[part] for part in done if names[part] in kinds and part not in self.outputs]
        elsewhere = [n for n in self.placed if names[self.outputs[n]] != f"place{n}"]  # equal to another, or an input
        lines += [f"place{number}.copy_({names[self.outputs[number]]})" for number in elsewhere]
        returned = [f"place{n}" if n in self.placed else names[node] for n, node in enumerate(self.outputs)]
        arguments = ", ".join([*self.variables, *(f"place{number}" for number in self.placed)])
        bound = ", ".join([*kinds, *(f"k{i}" for i in range(len(self.constants)))])
        body = "\n".join(
            f"        {line}" for line in [*lines, f"return ({''.join(f'{name}, ' for name in returned)})"]
        )
        self.text = f"def bind({bound}):\n    def run({arguments}):\n{body}\n    return run\n"
        space: dict[str, Any] = dict(FUNCTIONS)
        exec(compile(self.text, f"<{name}>", "exec"), space)
        self._bind = space["bind"]

    def bound(self, scratch: Scratch, steps: int | None = None) -> Bound:
        """Bind the program to buffers from `scratch`."""
        buffers = [scratch(name, steps, torch.bool if condition else None) for name, condition in self.buffers]
        constants = [scratch.full(node.number, steps) for node in self.constants]
        run: Bound = self._bind(*buffers, *constants)
        return run

    def _line(self, node: Expression, names: dict[Expression, str]) -> str:
        parts = [names[part] for part in self._parts(node)]
        form = self._form(node)
        if form == "clamp":
            low, high = node.inputs[0].inputs[1].number, node.inputs[1].number
            parts += [repr(low), repr(high)]
        more = ", value=-1" if form in ("minus_product", "negative_product") else ""
        function = "plus_product" if form in ("minus_product", "negative_product", "product_and_itself") else form
        function = f"{function}_" if function in WORDS else function
        return f"{function}({', '.join(parts)}{more}, out={names[node]})"

    def _form(self, node: Expression) -> str:
        """The torch operation that computes a node; some fuse two nodes."""
        if node.operation == "add":
            for y in node.inputs:
                if y.operation == "neg":
                    product = y.inputs[0].operation == "mul" and self.uses[y] == self.uses[y.inputs[0]] == 1
                    return "minus_product" if product and not _has_constant(y.inputs[0]) else "sub"
            for y in node.inputs:
                if y.operation == "mul" and self.uses[y] == 1 and not _has_constant(y):
                    return "plus_product"
        if node.operation == "mul" and any(y.operation == "reciprocal" and self.uses[y] == 1 for y in node.inputs):
            return "div"
        if node.operation == "mul" and self._more_by(*node.inputs) is not None:
            return "product_and_itself"
        if node.operation == "clamp_max" and node.inputs[0].operation == "clamp_min" and self.uses[node.inputs[0]] == 1:
            low, high = node.inputs[0].inputs[1], node.inputs[1]
            if low.is_constant() and high.is_constant():
                return "clamp"
        if node.operation == "mul" and _rest(*node.inputs) is not None:
            return "minus_square"
        if node.operation == "neg" and node.inputs[0].operation == "mul" and self.uses[node.inputs[0]] == 1:
            return "negative_product"
        if node.operation == "cosh" and node.inputs[0] in self.sinhs and _is_moderate(node.inputs[0]):
            return "cosh_from_sinh"
        if node.operation == "exp" and node.inputs[0] in self.expm1s and self.users.get(node, set()) <= {"mul"}:
            return "exp_from_expm1"
        if node.operation == "sinh" and self.users.get(node, set()) <= TELLS_NO_MORE and _is_moderate(node.inputs[0]):
            return "short_sinh"
        return node.operation

    def _parts(self, node: Expression) -> tuple[Expression, ...]:
        """The arguments of that operation."""
        form = self._form(node)
        if form in ("sub", "minus_product"):
            x, y = node.inputs if node.inputs[1].operation == "neg" else node.inputs[::-1]
            return (x, y.inputs[0]) if form == "sub" else (x, *y.inputs[0].inputs)
        if form == "plus_product":
            mine = [y.operation == "mul" and self.uses[y] == 1 and not _has_constant(y) for y in node.inputs]
            x, y = node.inputs if mine[1] else node.inputs[::-1]
            return (x, *y.inputs)
        if form == "div":
            x, y = node.inputs
            if not (y.operation == "reciprocal" and self.uses[y] == 1):
                x, y = y, x
            return (x, y.inputs[0])
        if form == "product_and_itself":
            found = self._more_by(*node.inputs)
            assert found is not None
            return (found[0], *found)
        if form == "cosh_from_sinh":
            return (self.sinhs[node.inputs[0]], constant(1.0))
        if form == "exp_from_expm1":
            return (self.expm1s[node.inputs[0]], constant(1.0))
        if form == "short_sinh":
            return (*node.inputs, constant(0.5), constant(-0.5))
        if form == "minus_square":
            rest = _rest(*node.inputs)
            assert rest is not None
            return (rest,)
        if form == "negative_product":
            return (constant(0.0), *node.inputs[0].inputs)
        return (node.inputs[0].inputs[0],) if form == "clamp" else node.inputs

    def _more_by(self, x: Expression, y: Expression) -> tuple[Expression, Expression] | None:
        """x and z if the other of two factors is 1 + z and nothing else uses it: the product is then x + x z."""
        for one, other in ((x, y), (y, x)):
            if other.operation == "add" and self.uses[other] == 1 and constant(1.0) in other.inputs:
                rest = [part for part in other.inputs if part is not constant(1.0)]
                if len(rest) == 1 and not rest[0].is_constant() and rest[0].operation != "neg":
                    return one, rest[0]
        return None


def _rest(x: Expression, y: Expression) -> Expression | None:
    """x if the other of two factors is 1 - x."""
    for one, other in ((x, y), (y, x)):
        if other is constant(1.0) - one:
            return one
    return None


def _is_moderate(x: Expression) -> bool:
    """Whether a value is clamped to a range where the square of its sinh does not overflow."""
    if x.operation != "clamp_max" or x.inputs[0].operation != "clamp_min":
        return False
    bounds = (x.inputs[1], x.inputs[0].inputs[1])
    return all(bound.is_constant() and abs(bound.number) <= MODERATE for bound in bounds)


def _has_constant(product: Expression) -> bool:
    return any(part.is_constant() for part in product.inputs)


@lru_cache(maxsize=512)
def program(outputs: tuple[Expression, ...], placed: tuple[int, ...], name: str) -> FormulaProgram:
    """A program, memoised."""
    return FormulaProgram(outputs, placed, name)


def _sigmoid_complement(x: Tensor, out: Tensor) -> Tensor:
    return torch.neg(x, out=out).sigmoid_()


def _cosh_from_sinh(sinh: Tensor, one: Tensor, out: Tensor) -> Tensor:
    """cosh from sinh if both are needed: a third of the time of torch's cosh."""
    return torch.addcmul(one, sinh, sinh, out=out).sqrt_()


def _short_sinh(x: Tensor, half: Tensor, minus_half: Tensor, out: Tensor) -> Tensor:
    """(e^x - e^-x) / 2, in half of the time of torch's sinh.

    Near zero the difference has as many significant bits as its only user, a sigmoid, can resolve.
    """
    growth = torch.exp(x)
    return torch.mul(growth, half, out=out).addcdiv_(minus_half, growth)


def _minus_square(x: Tensor, out: Tensor) -> Tensor:
    return torch.addcmul(x, x, x, value=-1, out=out)


MODERATE = 40.0
TELLS_NO_MORE = frozenset({"sigmoid", "sigmoid_complement", "cosh"})
"""Operations whose result does not depend on the last bits of a small sinh."""


def _isnan(x: Tensor, out: Tensor) -> Tensor:
    return torch.ne(x, x, out=out)


OWN_NAMES = (
    *("add", "sub", "mul", "div", "neg", "reciprocal", "where", "lt", "le", "eq", "abs", "sign", "maximum", "minimum"),
    *("floor", "clamp", "exp", "expm1", "log", "log1p", "sigmoid", "tanh", "sinh", "cosh", "asinh", "sqrt", "rsqrt"),
    *("remainder", "pow", "sin", "cos", "tan", "atan", "erf"),
)
"""Operations with the same name in torch as in formulas."""
WORDS = ("not", "and", "or")
"""Operations whose names are Python keywords: they get an underscore."""
FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(torch, name) for name in OWN_NAMES} | {
    "plus_product": torch.addcmul,
    "isnan": _isnan,
    "not_": torch.logical_not,
    "and_": torch.logical_and,
    "or_": torch.logical_or,
    "clamp_min": torch.maximum,
    "clamp_max": torch.minimum,
    "sigmoid_complement": _sigmoid_complement,
    "cosh_from_sinh": _cosh_from_sinh,
    "exp_from_expm1": torch.add,  # for a forget value and its complement: as precise as a product can resolve
    "short_sinh": _short_sinh,
    "minus_square": _minus_square,
}
"""Functions that write the result of an operation into `out`."""
