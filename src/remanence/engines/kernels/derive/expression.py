"""Expression graphs: the formula of a gate and its derivatives, as nodes that can be printed as code.

Equal formulas are the same object (hash consing), so common subexpressions exist once. Their order, and so the printed
code, depends only on the formula. Expressions are simplified as they are built, but never so that NaN or infinity would
change: `0 * x` stays, `1 * x` and `x + 0` become `x`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "eq", "and", "or"})
CONDITIONS = frozenset({"lt", "le", "eq", "not", "and", "or", "isnan"})
"""Operations with a boolean result."""


class Expression:
    """A node: a constant, a named input, or an operation on others. Built by `constant`, `variable` and `apply`."""

    __slots__ = ("depth", "inputs", "key", "operation", "value")

    def __init__(self, operation: str, inputs: tuple[Expression, ...], value: float | str | None, key: bytes) -> None:
        self.operation = operation
        self.inputs = inputs
        self.value = value
        """The value of a constant, or the name of a variable."""
        self.key = key
        """Digest, the same for equal formulas in every process."""
        self.depth: int = 1 + max((part.depth for part in inputs), default=0)

    def is_constant(self, value: float | None = None) -> bool:
        """Whether it is a constant, with this value if one is given."""
        return self.operation == "constant" and (value is None or self.value == value)

    @property
    def number(self) -> float:
        """The value of a constant."""
        assert isinstance(self.value, float)
        return self.value

    @property
    def is_condition(self) -> bool:
        """Whether its value is boolean."""
        return self.operation in CONDITIONS

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and unpickled nodes are the same object, as all equal formulas are."""
        return _node, (self.operation, self.inputs, self.value)

    def __neg__(self) -> Expression:
        return apply("neg", self)

    def __add__(self, other: Expression | float) -> Expression:
        return apply("add", self, _lift(other))

    __radd__ = __add__

    def __sub__(self, other: Expression | float) -> Expression:
        return self + -_lift(other)

    def __rsub__(self, other: Expression | float) -> Expression:
        return _lift(other) + -self

    def __mul__(self, other: Expression | float) -> Expression:
        return apply("mul", self, _lift(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Expression | float) -> Expression:
        return self * apply("reciprocal", _lift(other))

    def __rtruediv__(self, other: Expression | float) -> Expression:
        return _lift(other) / self

    def __lt__(self, other: Expression | float) -> Expression:
        return apply("lt", self, _lift(other))

    def __le__(self, other: Expression | float) -> Expression:
        return apply("le", self, _lift(other))

    def __repr__(self) -> str:
        if self.operation in ("constant", "variable"):
            return str(self.value)
        return f"{self.operation}({', '.join(map(repr, self.inputs))})"


_made: dict[bytes, Expression] = {}


def _node(operation: str, inputs: tuple[Expression, ...], value: float | str | None = None) -> Expression:
    own = value.hex() if isinstance(value, float) else str(value)
    digest = hashlib.blake2b(f"{operation} {own} ".encode(), digest_size=16)
    for part in inputs:
        digest.update(part.key)
    key = digest.digest()
    found = _made.get(key)
    if found is None:  # two threads may build the same node at once: the first one wins
        found = _made.setdefault(key, Expression(operation, inputs, value, key))
    return found


def constant(value: float) -> Expression:
    """A constant node."""
    return _node("constant", (), float(value))


def variable(name: str) -> Expression:
    """A named input."""
    return _node("variable", (), name)


def _lift(value: Expression | float) -> Expression:
    return value if isinstance(value, Expression) else constant(value)


def where(condition: Expression, then: Expression | float, otherwise: Expression | float) -> Expression:
    """`torch.where` as a node."""
    return apply("where", condition, _lift(then), _lift(otherwise))


def apply(operation: str, *inputs: Expression) -> Expression:
    """An operation on other nodes, simplified."""
    if operation in COMMUTATIVE:
        inputs = tuple(sorted(inputs, key=lambda part: (part.depth, part.key)))
    found = _simplified(operation, inputs)
    return _node(operation, inputs) if found is None else found


def _simplified(operation: str, inputs: tuple[Expression, ...]) -> Expression | None:
    """An equal, simpler expression; None if there is none."""
    if operation == "where":
        return _simplified_choice(*inputs)
    if inputs and all(part.is_constant() for part in inputs):
        return _folded(operation, inputs)
    if operation == "neg":
        (x,) = inputs
        if x.operation == "neg":
            return x.inputs[0]
        if x.operation == "where":
            return where(x.inputs[0], -x.inputs[1], -x.inputs[2])
        if x.operation == "mul" and x.inputs[0].is_constant():
            return constant(-x.inputs[0].number) * x.inputs[1]
    elif operation == "sigmoid":
        (x,) = inputs
        if x.operation == "neg":  # so that sigmoid(x) and sigmoid(-x) have the same input and can be computed together
            return apply("sigmoid_complement", x.inputs[0])
    elif operation == "sigmoid_complement":
        (x,) = inputs
        if x.operation == "neg":
            return apply("sigmoid", x.inputs[0])
    elif operation == "le" and inputs[0].operation == "clamp_min" and inputs[0].inputs[1].is_constant():
        low, high = inputs[0].inputs[1], inputs[1]
        if high.is_constant() and low.number <= high.number:
            return apply("le", inputs[0].inputs[0], high)
    elif operation == "not" and inputs[0].operation == "not":
        return inputs[0].inputs[0]
    elif operation == "add":
        return _simplified_sum(*inputs)
    elif operation == "mul":
        return _simplified_product(*inputs)
    return None


def _simplified_choice(condition: Expression, then: Expression, otherwise: Expression) -> Expression | None:
    if then is otherwise:
        return then
    if condition.operation == "not":
        return where(condition.inputs[0], otherwise, then)
    if then.operation == "where" and then.inputs[0] is condition:
        return where(condition, then.inputs[1], otherwise)
    if otherwise.operation == "where" and otherwise.inputs[0] is condition:
        return where(condition, then, otherwise.inputs[2])
    if then.operation == "where" and then.inputs[2] is otherwise:
        return where(apply("and", condition, then.inputs[0]), then.inputs[1], otherwise)
    return None


def _simplified_sum(x: Expression, y: Expression) -> Expression | None:
    for one, other in ((x, y), (y, x)):
        if one.is_constant(0.0):
            return other
    if x.operation == y.operation == "where" and x.inputs[0] is y.inputs[0]:
        return where(x.inputs[0], x.inputs[1] + y.inputs[1], x.inputs[2] + y.inputs[2])
    if x.operation == y.operation == "neg":
        return -(x.inputs[0] + y.inputs[0])
    return None


def _simplified_product(x: Expression, y: Expression) -> Expression | None:
    for one, other in ((x, y), (y, x)):
        if one.is_constant(1.0):
            return other
        if one.is_constant(-1.0):
            return -other
        if one.operation == "neg":
            return -(one.inputs[0] * other)
        if one.is_constant() and other.operation == "mul" and other.inputs[0].is_constant():
            return constant(one.number * other.inputs[0].number) * other.inputs[1]
        if one.operation == "where" and one.inputs[1].is_constant() and one.inputs[2].is_constant():
            return where(one.inputs[0], one.inputs[1] * other, one.inputs[2] * other)
    # Constants go to the front, where the next simplification finds them.
    if y.is_constant() and not x.is_constant():
        return _node("mul", (y, x))
    return None


FOLDED: dict[str, Callable[..., float]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
    "reciprocal": lambda x: 1 / x,
    "maximum": max,
    "minimum": min,
    "clamp_min": max,
    "clamp_max": min,
    "abs": abs,
    **{
        name: getattr(math, name)
        for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "atan", "erf")
    },
    **{name: getattr(math, name) for name in ("tanh", "sinh", "cosh", "asinh")},
}
"""Operations that are constant-folded."""


def _folded(operation: str, inputs: tuple[Expression, ...]) -> Expression | None:
    if operation not in FOLDED:
        return None
    try:
        return constant(FOLDED[operation](*(part.number for part in inputs)))
    except (ValueError, OverflowError, ZeroDivisionError):
        return None


def ordered(
    outputs: Iterable[Expression],
    parts: Callable[[Expression], tuple[Expression, ...]] = lambda node: node.inputs,
) -> list[Expression]:
    """These nodes and everything they depend on, in topological order (inputs first).

    Args:
        outputs: Nodes to compute.
        parts: Returns the nodes that a node depends on.
    """
    found: dict[Expression, None] = {}
    waiting = [(node, False) for node in reversed(list(outputs))]
    while waiting:
        node, ready = waiting.pop()
        if ready:
            found[node] = None
        elif node not in found:
            waiting.append((node, True))
            waiting.extend((part, False) for part in reversed(parts(node)) if part not in found)
    return list(found)


def substituted(outputs: Iterable[Expression], replacements: Mapping[Expression, Expression]) -> list[Expression]:
    """The same formulas with some nodes replaced by others."""
    outputs = list(outputs)
    new: dict[Expression, Expression] = {}
    for node in ordered(outputs):
        if node in replacements:
            new[node] = replacements[node]
        elif node.inputs:
            new[node] = apply(node.operation, *(new[part] for part in node.inputs))
        else:
            new[node] = node
    return [new[node] for node in outputs]


def variables(outputs: Iterable[Expression]) -> Iterator[str]:
    """Names of the variables that formulas depend on."""
    return (str(node.value) for node in ordered(outputs) if node.operation == "variable")
